"""Run a log through the live engine and write the predictions beside the original topics, as MCAP.

The file opens in Foxglove, PlotJuggler and rosbag2. Predictions are JointTrajectory on
/predictor/prediction/<stream>. Printed are the latency of a message and the error over the log's time.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from robopos.cli.options import add_bundle, add_device, add_json, add_log, add_out

if TYPE_CHECKING:
    from robopos.logs import Log
    from robopos.sequences import SequenceLayout
    from robopos.serving import Engine, ReplaySummary

HELP = "a log through the live engine, to MCAP"
PARITY = 1e-4  # of a residual's scale; float32 alone stays below 1e-5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_bundle(parser)
    add_log(parser)
    add_out(parser, "MCAP file to write")
    parser.add_argument("--last-s", type=float, metavar="S", help="only the last S seconds of the log (default: all)")
    parser.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help="R times as fast as recorded (1.0 is real time), leaving out predictions when late as a robot would "
        "(default: as fast as it can, with every prediction)",
    )
    parser.add_argument(
        "--mode",
        choices=("stream", "window"),
        help="with cached keys, or each window anew (default: stream where the bundle can)",
    )
    parser.add_argument(
        "--step",
        default="eager",
        metavar="STEP",
        help="eager, compile, graph, or a file of robopos export (default: %(default)s)",
    )
    for rule, what in (
        ("gap", "a longer silence forgets the context"),
        ("lateness", "a message so far behind the newest stamp is dropped"),
    ):
        parser.add_argument(
            f"--max-{rule}-s",
            type=float,
            metavar="S",
            help=f"{what}, as the node's parameter max_{rule}_s (s; default: the bundle's)",
        )
    parser.add_argument(
        "--compare-batch", action="store_true", help="compare every prediction with evaluation of the same log"
    )
    add_device(parser)
    add_json(parser, "the summary")


def run(args: argparse.Namespace) -> None:
    """Replay, then print latencies and errors."""
    from pathlib import Path

    from robopos.cli.show import Progress, write_json
    from robopos.errors import ConfigError
    from robopos.logs import count_messages, log_files
    from robopos.model import Bundle
    from robopos.serving import Engine, replay_to_log

    for option, value, unit in (("--last-s", args.last_s, " s"), ("--rate", args.rate, "")):
        if value is not None and not value > 0:
            raise ConfigError(f"{option} is {value:g}, must be > 0{unit}")
    if Path(args.out).resolve() in [file.resolve() for file in log_files(args.log)]:
        raise ConfigError(f"--out {args.out} is the log itself, or a file of it: name another file")
    bundle = Bundle.load(args.bundle).with_admission(args.max_gap_s, args.max_lateness_s)
    engine = Engine(bundle, device=args.device, mode=args.mode, step=args.step)
    with Progress("replay", count_messages(args.log)) as progress:
        summary = replay_to_log(
            engine, args.log, args.out, last_s=args.last_s, rate=args.rate, progress=progress.update
        )
    told = summary.to_dict() | {"out": args.out, "mode": engine.mode, "stats": engine.stats.to_dict()}
    _show_latency(engine, summary)
    print(f"predictions: {args.out}")
    try:
        if summary.predictions and not (summary.undecodable and not args.compare_batch):
            told |= _judge(args, engine, summary)
    finally:
        write_json(args.json, told)
    _refuse_difference(told)


def _show_latency(engine: Engine, summary: ReplaySummary) -> None:
    shown = summary.to_dict()
    print(
        f"{summary.predictions} predictions after {summary.messages} messages, mode {engine.mode}; "
        + (
            f"a message takes {shown['latency_p50_ms']:.2f} ms (p50), {shown['latency_p99_ms']:.2f} ms (p99)"
            if summary.predictions
            else f"a prediction needs more than {engine.bundle.settings.history} messages before it"
        )
    )
    if summary.skipped:
        print(f"{summary.skipped} predictions were left out: the next message was due already")
    if summary.undecodable:
        print(f"{summary.undecodable} messages could not be decoded and were skipped")
    for reason, count in engine.stats.resets.items():
        print(f"reset {count} x: {reason}")
    most = max((count for _, count in summary.histogram()), default=0)
    for bound_ms, count in summary.histogram():
        if count:
            label = "     more" if bound_ms is None else f"<= {bound_ms:6g}"
            print(f"  {label} ms {count:8d} {'#' * max(1, round(40 * count / most))}")


def _judge(args: argparse.Namespace, engine: Engine, summary: ReplaySummary) -> dict[str, Any]:
    import numpy as np

    from robopos.cli.show import number, table
    from robopos.sequences import SequenceDataset
    from robopos.training.served import batch_parity, error_over_time

    bundle = engine.bundle
    dataset = SequenceDataset.build([_read(args.log, bundle.layout, summary.topics)], bundle.layout)
    tokens, values = np.asarray(summary.tokens), np.stack(summary.values)
    told: dict[str, Any] = {"error_over_time": error_over_time(bundle, dataset, tokens, values)}
    table(
        "error over time, in scales of the residuals",
        ["from", "to", "values", "RMSE", "hold last", "skill"],
        [
            [
                f"{row['from_s']:.1f} s",
                f"{row['to_s']:.1f} s",
                str(row["count"]),
                f"{row['rmse']:.4g}",
                f"{row['rmse_hold_last']:.4g}",
                number(row["skill"], "+.3f"),
            ]
            for row in told["error_over_time"]
        ],
    )
    if args.compare_batch:
        parity = batch_parity(bundle, dataset, tokens, values, engine.mode)
        told["compare_batch"] = parity._asdict()
        print(
            f"against evaluation of the same log: {parity.predictions} predictions, largest difference "
            f"{parity.largest:.2g} of a residual's scale (token {parity.token}), rms {parity.rms:.2g}"
        )
    return told


def _read(path: str, layout: SequenceLayout, topics: set[str]) -> Log:
    """The log's streams; one that it has not is empty, as it was for the engine: a sensor may be silent."""
    import numpy as np

    from robopos.cli.show import notes
    from robopos.logs import Log, Stream, read_log, topic_key

    asked = layout.log_streams()
    log = read_log(path, {name: spec for name, spec in asked.items() if topic_key(spec.topic) in topics})
    notes(log.warnings)
    none = np.zeros(0, np.int64)
    absent = {
        s.name: Stream(
            **{name: getattr(s, name) for name in ("name", "topic", "type", "schema", "encoding")},
            **{name: getattr(s, name) for name in ("units", "frame_ids", "clock")},
            names=s.fields,
            time_ns=none,
            arrival_ns=none,
            order=none,
            values=np.zeros((0, len(s.fields))),
        )
        for s in layout.streams
        if s.name not in log
    }
    if absent:
        print(f"not in the log: {', '.join(asked[name].topic for name in absent)}")
    return Log({name: log[name] if name in log else absent[name] for name in asked}, log.paths, log.warnings)


def _refuse_difference(told: dict[str, Any]) -> None:
    from robopos.errors import ServingError

    parity = told.get("compare_batch")
    if parity is not None and not parity["largest"] <= PARITY:
        raise ServingError(
            f"live and evaluated predictions differ by {parity['largest']:.2g} of a residual's scale at token "
            f"{parity['token']} (allowed {PARITY:g})"
        )
