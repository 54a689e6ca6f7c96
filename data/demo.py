"""The demo: the mower's log from inspection to a ROS 2 node. `make demo` runs it.

Every step is a command that you can type; the demo prints it first. Results go to runs/demo.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

from robopos.cli.ending import exit_code

ROOT = Path(__file__).resolve().parent.parent
LOG = "data/cache/mower.mcap"
OUT = "runs/demo"
CONFIG = "configs/compare_mower_demo.yaml"


def run(title: str, *arguments: str) -> None:
    """Print and run one command; the first that fails ends the demo."""
    started = time.monotonic()
    command = [sys.executable, "-m", *arguments]
    shown = shlex.join(["robopos", *arguments[1:]] if arguments[0] == "robopos" else ["python", "-m", *arguments])
    print(f"\n=== {title}\n$ {shown}", flush=True)
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    if code != 0:
        sys.exit(f"demo: '{shown}' ended with code {code}")
    print(f"    ({time.monotonic() - started:.0f} s)", flush=True)


def read(name: str) -> dict:
    return json.loads((ROOT / OUT / name).read_text("utf-8"))


def main() -> None:
    started = time.monotonic()
    bundle = f"{OUT}/train/bundle"
    run("1/6 What is in the log", "robopos", "inspect", LOG)
    run("2/6 Train", "robopos", "train", "--config", "configs/mower.yaml", "--out", f"{OUT}/train", "--force")
    run(
        "3/6 Judge it on the last part of the log, which it never saw",
        *("robopos", "evaluate", bundle, LOG, "--split", "test", "--json", f"{OUT}/scores.json"),
    )
    run("4/6 Index against time", "robopos", "compare", "--config", CONFIG, "--out", f"{OUT}/report")
    run(
        "5/6 Replay the last minute through the live engine",
        *("robopos", "replay", bundle, LOG, "--last-s", "60", "--out", f"{OUT}/predictions.mcap"),
        *("--json", f"{OUT}/replay.json"),
    )
    ros = find_spec("rclpy") is not None and find_spec("robopos_ros") is not None
    if ros:
        run(
            "6/6 The last 20 s through the ROS 2 node, message by message",
            *("robopos_ros.lockstep", bundle, LOG, "--last-s", "20", "--json", f"{OUT}/ros.json"),
        )
    else:
        print("\n=== 6/6 skipped: no ROS 2 for Python here (x86-64 Linux has wheels; see README)", flush=True)
    summarize(ros, time.monotonic() - started)


def summarize(ros: bool, took_s: float) -> None:
    """Where everything lies, and the main figures."""
    scores, replay = read("scores.json"), read("replay.json")
    report = (ROOT / OUT / "report" / "report.md").read_text("utf-8")
    table = next(part for part in report.split("\n\n") if part.startswith("|"))
    print(f"\n=== Done in {took_s:.0f} s\n")
    print("Skill against holding the last value, by condition and scheme (1 is perfect; 95 % intervals):\n")
    print(table)
    ranges = [row for row in scores if row["target"].endswith(".range") and row["horizon_s"] == 1.0]
    error = sum(row["rmse"] for row in ranges) / len(ranges)
    held = sum(row["rmse_hold_last"] for row in ranges) / len(ranges)
    print(f"\nRange to a beacon 1 s ahead: RMSE {error:.2f} m; holding the last value {held:.2f} m")
    print(
        f"Live engine: {replay['predictions']} predictions, {replay['latency_p50_ms']:.2f} ms each (p50), "
        f"{replay['latency_p99_ms']:.2f} ms (p99)"
    )
    if ros:
        node = read("ros.json")
        print(
            f"ROS 2 node: {node['predictions']} predictions, largest difference to the engine "
            f"{node['max_difference']:.1e}, message to prediction {node['latency_ms']['p50']:.1f} ms (p50)"
        )
    print(f"\n  report       {OUT}/report/index.html  (and report.md, cells.csv)")
    print(f"  bundle       {OUT}/train/bundle")
    print(f"  predictions  {OUT}/predictions.mcap  (opens in Foxglove)")


if __name__ == "__main__":
    sys.exit(exit_code("demo", main))
