"""The `robopos` command: one small file a sub-command, parsing and printing only.

A command module has `HELP` (one line), `configure(parser)` and `run(args)`. What is heavy is imported
inside `run`, so that `robopos --help` stays quick.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys

from robopos._version import __version__
from robopos.cli.ending import EXIT_CODES, exit_code
from robopos.cli.options import TEXTS

# The road of one's own log.
ROAD = {
    "look at a log": ("inspect", "init"),
    "train": ("train", "bundle"),
    "judge": ("evaluate", "check"),
    "compare positions": ("compare", "plot"),
    "serve": ("replay", "export", "serve", "play"),
    "this machine": ("doctor", "completion"),
}
COMMANDS = tuple(name for names in ROAD.values() for name in names)
DEBUG_HELP = "show the traceback of an error"


class _ByRoad(argparse.RawDescriptionHelpFormatter):
    """Lists the commands under the headings of the road."""

    def _format_action(self, action: argparse.Action) -> str:
        if not isinstance(action, argparse._SubParsersAction):
            return super()._format_action(action)
        told = {listed.dest: listed.help for listed in action._get_subactions()}
        width = max(map(len, told))
        lines = []
        for heading, names in ROAD.items():
            lines += [f"  {heading}:\n", *(f"    {name:{width}}  {told[name]}\n" for name in names)]
        return "".join(lines)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command."""
    parser = argparse.ArgumentParser(
        prog="robopos",
        description="Sequence models on timestamped robot sensor streams.",
        epilog=f"`robopos COMMAND --help` explains each.\n{EXIT_CODES}",
        formatter_class=_ByRoad,
    )
    parser.add_argument("--version", action="version", version=f"robopos {__version__}", help="show the version")
    parser.add_argument("--debug", action="store_true", help=DEBUG_HELP)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for name in COMMANDS:
        module = importlib.import_module(f"robopos.cli.{name}")
        sub = commands.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **getattr(module, "PARSER_OPTIONS", {}),
        )
        # Also accepted after the command, where people type it; the outer value stays when it is absent.
        if sub.add_help:
            sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=DEBUG_HELP)
        module.configure(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    args = build_parser().parse_args(argv)
    if "--debug" in getattr(args, "settings", ()):  # the parser of the settings does not know it
        args.debug, args.settings = True, [given for given in args.settings if given != "--debug"]
    with contextlib.ExitStack() as redirected:
        standard_output = sys.stdout
        for name in TEXTS:
            if getattr(args, name, None) == "-":
                # Standard output is that text's alone: words go to standard error meanwhile.
                setattr(args, name, standard_output)
                redirected.enter_context(contextlib.redirect_stdout(sys.stderr))
        return exit_code(f"robopos {args.command}", lambda: args.run(args), debug=args.debug)
