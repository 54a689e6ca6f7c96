"""Print a script that completes `robopos` commands, options and files in a shell.

bash: robopos completion bash > ~/.local/share/bash-completion/completions/robopos
zsh:  robopos completion zsh > ~/.zfunc/_robopos     (with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec

HELP = "a script for completion in bash or zsh"
# What a metavar stands for, by shtab's names.
FILES, FOLDERS = ("LOG", "CONFIG", "CHECKPOINT", "FILE", "STEP"), ("BUNDLE", "FOLDER")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=("bash", "zsh"), help="the shell that shall complete")


def run(args: argparse.Namespace) -> None:
    """Print the script."""
    import shtab

    from robopos.cli import build_parser
    from robopos.cli.compare import settings_parser as compare_parser
    from robopos.training.lightning_cli import settings_parser as train_parser

    parser = build_parser()
    # These know their own options; the others stand in the parser.
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    commands.choices |= {"train": train_parser(), "compare": compare_parser()}
    if find_spec("robopos_ros") is not None:
        commands.choices["play"] = import_module("robopos_ros.play").build_parser()
    for action in _actions(parser):
        if action.metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # where shtab looks
        elif action.metavar in FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(parser, args.shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for sub in dict.fromkeys(action.choices.values()):
                yield from _actions(sub)
