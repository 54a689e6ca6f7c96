"""Run a log through the live engine and write the predictions beside the original topics, as MCAP.

The file opens in Foxglove, PlotJuggler and rosbag2. Predictions are JointTrajectory on
/predictor/prediction/<stream>.
"""

from __future__ import annotations

import argparse

HELP = "a log through the live engine, to MCAP"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", metavar="BUNDLE", help="folder of the bundle")
    parser.add_argument("log", metavar="LOG", help="MCAP file")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="MCAP file to write")
    parser.add_argument("--last-s", type=float, metavar="S", help="only the last S seconds of the log")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    parser.add_argument("--json", metavar="FILE", help="write the summary as JSON")


def run(args: argparse.Namespace) -> None:
    from pathlib import Path

    from robopos.cli.show import Progress, write_json
    from robopos.errors import ConfigError
    from robopos.logs import iter_messages
    from robopos.serving import Engine, replay_to_log

    if args.last_s is not None and not args.last_s > 0:
        raise ConfigError(f"--last-s is {args.last_s:g}, must be > 0 s")
    if Path(args.out).resolve() == Path(args.log).resolve():
        raise ConfigError(f"--out {args.out} is the log itself: name another file")
    engine = Engine.load(args.bundle, device=args.device)
    total = sum(1 for _ in iter_messages(args.log))
    with Progress("replay", total) as progress:
        summary = replay_to_log(engine, args.log, args.out, last_s=args.last_s, progress=progress.update)
    shown = summary.to_dict()
    print(
        f"{summary.predictions} predictions after {summary.messages} messages; "
        + (
            f"a message takes {shown['latency_p50_ms']:.2f} ms (p50), {shown['latency_p99_ms']:.2f} ms (p99)"
            if summary.predictions
            else f"a prediction needs more than {engine.bundle.settings.history} messages before it"
        )
    )
    if summary.undecodable:
        print(f"{summary.undecodable} messages could not be decoded and were skipped")
    print(f"predictions: {args.out}")
    write_json(args.json, shown | {"out": args.out, "stats": engine.stats.to_dict()})
