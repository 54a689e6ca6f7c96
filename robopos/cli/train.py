"""Train a model on recorded logs and write a bundle.

A LightningCLI: every option of the YAML is also one of the command line, with the same name. `robopos train --help`
lists them all, `robopos train --config FILE --print_config` shows what would be used.
"""

from __future__ import annotations

import argparse

from robopos.cli.options import HANDS_ON

HELP = "train on logs, write a bundle"
PARSER_OPTIONS = HANDS_ON  # to LightningCLI


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("settings", nargs=argparse.REMAINDER, help="-c CONFIG, -o FOLDER, any setting by its name")


def run(args: argparse.Namespace) -> None:
    """Train, judge the best checkpoint on the test split and write its bundle."""
    from robopos.cli.show import Progress, notes, scores, step_note
    from robopos.training.lightning_cli import TrainingRun

    training = TrainingRun(args.settings)
    notes(training.notes)
    print(training.summary(), flush=True)
    with Progress("train", training.steps) as progress:
        bundle = training.fit(lambda step, metrics: progress.update(step, step_note(metrics)))
    scores("test split, best checkpoint", bundle.metrics)
    print(f"bundle: {training.save(bundle)}")
