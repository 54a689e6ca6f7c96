"""How long imports take beyond torch's, and how soon the command line answers.

    python benchmarks/starts.py [--quick] [--json FILE]

Each time is that of a fresh process, whose files were read before (the first round does not count). Imports are timed
inside of it, after `import torch`; commands from their start to their end. The figure is the median of all rounds.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable

from measuring import Report, in_turns, medians, parser

IMPORTED = ("robopos", "robopos.positions", "robopos.logs", "robopos.model", "robopos.serving", "robopos.training")
COMMANDS = ("--help", "inspect --help", "evaluate --help")
TIMED = "import time, torch; start = time.perf_counter(); import {}; print(time.perf_counter() - start)"


def python(*arguments: str) -> str:
    """Standard output of a fresh interpreter."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=True).stdout


def main(argv: list[str] | None = None) -> int:
    """Print the figures."""
    args = parser(__doc__ or "", "one round").parse_args(argv)
    report, rounds = Report(), 1 if args.quick else 9
    beyond_s: dict[str, list[float]] = {module: [] for module in IMPORTED}

    def timed(module: str) -> Callable[[], None]:
        return lambda: beyond_s[module].append(float(python("-c", TIMED.format(module))))

    cases: dict[str, Callable[[], object]] = {module: timed(module) for module in IMPORTED}
    cases |= {command: lambda c=command: python("-m", "robopos", *c.split()) for command in COMMANDS}
    cases["python"] = lambda: python("-c", "pass")
    cases["torch"] = lambda: python("-c", "import torch")
    took_s = medians(in_turns(cases, rounds, warm_up=1))
    report.add("an interpreter that does nothing", took_s["python"], "s")
    report.add("an interpreter that imports torch", took_s["torch"], "s")
    for module in IMPORTED:
        target = {"at_most": 0.3} if module == "robopos" else {}
        report.add(f"import {module}, beyond torch", statistics.median(beyond_s[module][1:]), "s", **target)
    for command in COMMANDS:
        target = {"at_most": 0.5} if command == "--help" else {}
        report.add(f"robopos {command}", took_s[command], "s", **target)
    print(f"load at the end: {os.getloadavg()[0]:.1f}")
    if args.json:
        report.write_json(args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
