"""Draft a training configuration from a log.

The first log is measured: which topics hold numbers that change, at what rates, on which clock. The YAML gives the
reason beside each choice, and `robopos train --config` takes it as it is.
"""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "draft a training configuration from a log"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("logs", nargs="+", metavar="LOG", help="MCAP files, folders or patterns; each file is a log")
    parser.add_argument("-o", "--output", default="config.yaml", help="the file to write (default: %(default)s)")
    parser.add_argument("--out", default="runs/train", help="folder for the training's results (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")


def run(args: argparse.Namespace) -> None:
    """Write the configuration."""
    from robopos.errors import ConfigError
    from robopos.logs.draft import draft_config

    output = Path(args.output)
    if output.exists() and not args.force:
        raise ConfigError(f"{output} is there already: --force replaces it, -o names another")
    text = draft_config(args.logs, args.out)
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output} cannot be written ({error.strerror})") from error
    print(f"{output}: train with `robopos train --config {output}`")
