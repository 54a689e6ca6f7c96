"""MCAP to pandas: a log's streams as data frames, each row at its own time, then side by side. No ROS needed.

    python examples/mcap_to_pandas.py [LOG [TOPIC FIELD...]]

Without arguments it makes a log of an arm and reads its joints and IMU; `robopos inspect LOG` lists the topics of
yours. The frames go to runs/examples/*.csv.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from sample_log import messages

from robopos.logs import StreamSpec, read_log, write_log

OUT = Path("runs/examples")


def main(arguments: list[str]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    path = Path(arguments[0]) if arguments else write_log(OUT / "arm.mcap", messages(seconds=20))
    if arguments[1:]:
        streams = {"topic": StreamSpec(arguments[1], arguments[2:])}
    else:
        streams = {
            "joints": StreamSpec("/joint_states", ["position", "velocity"]),  # one column a joint
            "imu": StreamSpec("/imu", ["angular_velocity.z"]),
        }
    log = read_log(path, streams, clock="header")

    frames = {name: stream.to_pandas() for name, stream in log.items()}
    for name, frame in frames.items():
        frame.to_csv(OUT / f"{name}.csv")
        steps_ms = frame.index.to_series().diff().dt.total_seconds() * 1e3
        print(
            f"{name}: {len(frame)} rows, a step of {steps_ms.median():.1f} ms (median), {steps_ms.max():.1f} ms at most"
        )
        print(frame.drop(columns="arrival_ns").describe().loc[["mean", "std", "min", "max"]].round(3).to_string())

    # Beside each row of the first stream the newest row of every other at or before it: never one from the future.
    first, *others = frames.values()
    wide = first.sort_index()
    for name, frame in zip(list(frames)[1:], others, strict=True):
        wide = pd.merge_asof(wide, frame.sort_index(), left_index=True, right_index=True, suffixes=("", f"_{name}"))
    wide.to_csv(OUT / "side_by_side.csv")
    print(f"{', '.join(frames)} and side_by_side.csv in {OUT}: {wide.shape[0]} rows of {wide.shape[1]} columns")


if __name__ == "__main__":
    main(sys.argv[1:])
