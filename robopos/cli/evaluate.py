"""Judge a bundle on a log, in the streams' own units, against holding the last value and constant velocity."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from robopos.cli.options import add_bundle, add_device, add_json, add_logs, add_plot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from robopos.logs import LogMessage
    from robopos.model import Bundle
    from robopos.sequences import SequenceDataset
    from robopos.training import Predictions

HELP = "judge a bundle on a log"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_bundle(parser)
    add_logs(parser, "each file is a log of its own")
    parser.add_argument(
        "--split",
        choices=("all", "train", "validation", "test"),
        default="all",
        help="part of each log: all of one not trained on, or a split as cut in training (default: %(default)s)",
    )
    add_device(parser)
    add_json(parser, "the scores")
    parser.add_argument(
        "--markdown", metavar="FILE", help="write the scores as a Markdown table; '-' is standard output"
    )
    add_plot(parser, "predictions over time (s) and error over horizon (s)")
    parser.add_argument("--mcap", metavar="FILE", help="write the predictions as MCAP")


def run(args: argparse.Namespace) -> None:
    """Print the scores."""
    from pathlib import Path

    from robopos.cli.show import Progress, markdown_scores, notes, number, scores, write_json, write_text
    from robopos.errors import ConfigError, SequenceError
    from robopos.logs import read_logs
    from robopos.model import Bundle, pick_device
    from robopos.sequences import SequenceDataset, SplitSettings
    from robopos.settings import from_mapping
    from robopos.training import overall_skill, predict, score

    bundle = Bundle.load(args.bundle, pick_device(args.device))
    split = None
    if args.split != "all":
        if "split" not in bundle.training:
            raise ConfigError(f"--split {args.split}: {args.bundle} does not say how its logs were cut")
        split = from_mapping(SplitSettings, bundle.training["split"], "split")
    logs = read_logs(args.logs, bundle.layout.log_streams()).logs
    notes(warning for log in logs for warning in log.warnings)
    trained_on = {Path(path).resolve() for path in bundle.training.get("logs", ())}
    if split is None and trained_on & {path.resolve() for log in logs for path in log.paths}:
        notes(["this log was trained on; --split test judges the part that was not"])
    dataset = SequenceDataset.build(logs, bundle.layout, split)
    with Progress("evaluate", len(dataset.table)) as progress:
        predictions = predict(bundle, dataset, args.split, progress=lambda done, _: progress.update(done))
    if not len(predictions.anchors):
        raise SequenceError(
            f"{', '.join(args.logs)}: no message has the {bundle.settings.history} messages before it "
            "that this model asks for"
        )
    rows = score(bundle.layout, predictions)
    title = f"{args.bundle} on {', '.join(args.logs)} ({args.split})"
    scores(title, rows)
    print(f"skill against hold last, mean: {number(overall_skill(rows), '+.3f')}")
    write_json(args.json, rows)
    write_text(args.markdown, markdown_scores(rows))
    if args.plot is not None:
        from robopos.training.figures import draw_evaluation

        draw_evaluation(bundle.layout, predictions, rows, args.plot, title)
        print(f"plot: {args.plot}")
    if args.mcap is not None:
        from robopos.logs import write_log

        write_log(args.mcap, _messages(bundle, dataset, predictions))
        print(f"predictions: {args.mcap}")


def _messages(bundle: Bundle, dataset: SequenceDataset, predictions: Predictions) -> Iterator[LogMessage]:
    import numpy as np

    from robopos.serving import Prediction, Trajectories

    trajectories = Trajectories(bundle.layout)
    horizons_s, arrival_ns = np.asarray(bundle.layout.horizons_s), dataset.table.arrival_ns[predictions.anchors]
    for i, reference_ns in enumerate(predictions.reference_ns.tolist()):
        std = None if predictions.std is None else predictions.std[i]
        made = Prediction(reference_ns, horizons_s, predictions.values[i], std, bundle.layout.target_names)
        yield from trajectories.of(made, int(arrival_ns[i]))
