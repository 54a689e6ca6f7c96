"""Draft a training configuration from a log.

The first log is measured: which topics hold numbers that change, at what rates, on which clock. The YAML gives the
reason beside each choice, and `robopos train --config` takes it as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from robopos.cli.options import add_logs, add_out

HELP = "draft a training configuration from a log"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_logs(parser, "each file is a log")
    add_out(parser, "file to write", metavar="CONFIG", default="config.yaml")
    parser.add_argument(
        "--train-out",
        metavar="FOLDER",
        default="runs/train",
        help="the configuration's `out`: where training writes (default: %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def run(args: argparse.Namespace) -> None:
    """Write the configuration."""
    from robopos.cli.show import write_text
    from robopos.errors import ConfigError
    from robopos.logs import draft_config

    if Path(args.out).exists() and not args.force:
        raise ConfigError(f"{args.out} is there already: --force replaces it, -o names another")
    write_text(args.out, draft_config(args.logs, args.train_out))
    print(f"{args.out}: train with `robopos train --config {args.out}`")
