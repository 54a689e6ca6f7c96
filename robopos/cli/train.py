"""Train a model on recorded logs and write a bundle.

A LightningCLI: every option of the YAML is also one of the command line, with the same name. `robopos train --help`
lists them all, `robopos train --config FILE --print_config` shows what would be used.
"""

from __future__ import annotations

import argparse

HELP = "train on logs, write a bundle"
# Everything after `train` goes to LightningCLI, --help too.
PARSER_OPTIONS = {"add_help": False, "prefix_chars": "\0"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("arguments", nargs=argparse.REMAINDER)


def run(args: argparse.Namespace) -> None:
    from robopos.cli.show import Progress, scores, step_note
    from robopos.training.lightning_cli import TrainingRun

    arguments = [a for a in args.arguments if a != "--debug"]
    args.debug = args.debug or len(arguments) < len(args.arguments)
    training = TrainingRun(arguments)
    for note in training.notes:
        print(f"note: {note}")
    print(training.summary(), flush=True)
    with Progress("train", training.steps) as progress:
        bundle = training.fit(lambda step, metrics: progress.update(step, step_note(metrics)))
    scores("test split, best checkpoint", bundle.metrics)
    print(f"bundle: {training.save(bundle)}")
