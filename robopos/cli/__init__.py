"""The `robopos` command: one small file a sub-command, parsing and printing only.

A command module has `HELP` (one line), `configure(parser)` and `run(args)`. What is heavy is imported
inside `run`, so that `robopos --help` stays quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback

from robopos._version import __version__
from robopos.errors import RoboposError

# In the order of the road: look at a log, train on it, judge it, serve it.
COMMANDS = (
    *("inspect", "init", "plot", "train", "bundle", "evaluate", "check", "compare", "replay", "export"),
    *("serve", "play", "doctor"),
)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    parser = argparse.ArgumentParser(prog="robopos", description="Sequence models on timestamped robot sensor streams.")
    parser.add_argument("--version", action="version", version=f"robopos {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"robopos.cli.{name}")
        sub = commands.add_parser(name, help=module.HELP, description=module.__doc__, **_options(module))
        # Also accepted after the command, where people type it; the outer value stays when it is absent.
        if sub.add_help:
            sub.add_argument(
                "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
            )
        module.configure(sub)
        sub.set_defaults(run=module.run)
    return parser


def _options(module: object) -> dict[str, object]:
    # `train` hands its arguments to LightningCLI, which has a --help of its own.
    options: dict[str, object] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    return options | getattr(module, "PARSER_OPTIONS", {})


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code: 0 done, 1 a named error, 2 wrong usage, 130 interrupted."""
    args = build_parser().parse_args(argv)
    try:
        args.run(args)
    except RoboposError as error:
        if args.debug:
            traceback.print_exc()
        print(f"robopos {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"robopos {args.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader went away (`| head`): nothing left to say, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if args.debug:
            raise
        print(
            f"robopos {args.command}: unexpected {type(error).__name__}: {error} (run again with --debug)",
            file=sys.stderr,
        )
        return 1
    return 0
