"""The arguments that several commands have, worded once."""

from __future__ import annotations

import argparse

# For a command that hands everything after its name to another parser, --help too.
HANDS_ON = {"add_help": False, "prefix_chars": "\0"}
# Of these, what they name is written as text: `-` is standard output.
TEXTS = ("json", "markdown")


def add_bundle(parser: argparse.ArgumentParser) -> None:
    """BUNDLE."""
    parser.add_argument("bundle", metavar="BUNDLE", help="folder of a bundle, as robopos train writes it")


def add_log(parser: argparse.ArgumentParser) -> None:
    """LOG."""
    parser.add_argument("log", metavar="LOG", help="log with the bundle's topics: a file, a folder or a pattern")


def add_logs(parser: argparse.ArgumentParser, together: str) -> None:
    """LOG [LOG ...]; ``together`` says what several are."""
    parser.add_argument("logs", metavar="LOG", nargs="+", help=f"a file, a folder or a pattern; {together}")


def add_out(parser: argparse.ArgumentParser, what: str, *, metavar: str = "FILE", default: str | None = None) -> None:
    """-o, --out; required where there is no default."""
    said = what if default is None else f"{what} (default: %(default)s)"
    parser.add_argument("-o", "--out", metavar=metavar, required=default is None, default=default, help=said)


def add_device(parser: argparse.ArgumentParser, default: str = "auto") -> None:
    """--device."""
    parser.add_argument(
        "--device",
        metavar="NAME",
        default=default,
        help="where it computes: auto (CUDA where it is), cpu, cuda, cuda:1 (default: %(default)s)",
    )


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """--json."""
    parser.add_argument("--json", metavar="FILE", help=f"write {what} as JSON; '-' is standard output, alone there")


def add_plot(parser: argparse.ArgumentParser, what: str) -> None:
    """--plot."""
    parser.add_argument("--plot", metavar="FILE", help=f"draw {what} (PNG)")
