"""Every command speaks alike: each option is explained, the same thing has the same name, shells complete both."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from robopos.cli import COMMANDS, ROAD, build_parser, main
from robopos.cli.compare import settings_parser as compare_parser
from robopos.training.lightning_cli import settings_parser as train_parser


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser that reads what comes after each command, and that of `robopos` itself."""
    whole = build_parser()
    commands = next(a for a in whole._actions if isinstance(a, argparse._SubParsersAction))
    found = {"robopos": whole} | dict(commands.choices) | {"train": train_parser(), "compare": compare_parser()}
    if find_spec("robopos_ros") is not None:
        found["play"] = import_module("robopos_ros.play").build_parser()
    else:
        del found["play"]
    return found


PARSERS = parsers()
MEASURING = ("inspect", "evaluate", "check", "replay", "export", "doctor")


def actions(command: str) -> Iterator[argparse.Action]:
    for action in PARSERS[command]._actions:
        if action.help is not argparse.SUPPRESS and not isinstance(action, argparse._SubParsersAction):
            yield action


@cache
def shown_options(command: str) -> dict[str, str]:
    """The help of each option as it is shown, on one line, by its flags and by the name of an argument."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "2000")
        lines = PARSERS[command].format_help().splitlines()
    found: dict[str, str] = {}
    names: list[str] = []
    for line in lines:
        if re.match(r"  [-\w{]", line):
            names = re.findall(r"(?:^  |, )(-[-\w.+]+|[\w{][^ ]*)", line)
            found |= dict.fromkeys(names, line)
        elif line.startswith(" " * 10):
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def told(command: str, action: argparse.Action) -> str:
    """The help of one option as it is shown, on one line."""
    name = action.option_strings[0] if action.option_strings else action.metavar or "{" + ",".join(action.choices) + "}"
    return shown_options(command)[str(name)]


@pytest.mark.parametrize("command", PARSERS)
def test_every_option_is_explained_with_its_default_or_unit(command: str):
    for action in actions(command):
        name = "/".join(action.option_strings) or action.dest
        assert action.help and len(action.help) > 8, f"{command} {name} has no help"
        shown = told(command, action)
        optional = bool(action.option_strings) and not action.required
        if optional and action.default not in (None, False, argparse.SUPPRESS, "", []) and action.type is not None:
            assert "default: " in shown, f"{command} {name} does not say its default: {shown}"
        if unit := re.search(r"_(s|hz|ns)$", action.dest):
            words = {"s": r"\(s\b|\bs\)|seconds", "hz": "Hz", "ns": r"\bns\b"}[unit[1]]
            assert re.search(words, shown), f"{command} {name} does not say its unit: {shown}"


def test_a_default_that_is_shown_is_the_one_that_holds():
    for command in PARSERS:
        for action in actions(command):
            shown = re.search(r"default: ([^()\s,;]+)\)", told(command, action))
            if shown and isinstance(action.default, bool):
                assert shown[1] in (str(action.default), str(action.default).lower()), f"{command} {action.dest}"
            elif shown and isinstance(action.default, (int, float)):
                assert float(shown[1]) == action.default, f"{command} {action.dest}"
            elif shown and isinstance(action.default, str) and action.default and " " not in action.default:
                assert shown[1] == action.default, f"{command} {action.dest}"


@pytest.mark.parametrize("command", PARSERS)
def test_the_same_thing_has_the_same_name(command: str):
    metavars = {"log": {"LOG"}, "logs": {"LOG"}, "bundle": {"BUNDLE"}, "config": {"CONFIG"}, "json": {"FILE"}}
    metavars |= {"plot": {"FILE"}, "markdown": {"FILE"}, "mcap": {"FILE"}, "ckpt_path": {"CHECKPOINT"}}
    metavars |= {"checkpoint": {"CHECKPOINT"}, "out": {"FILE", "FOLDER", "BUNDLE", "CONFIG"}, "device": {"NAME"}}
    flags = {"out": ["-o", "--out"], "config": ["-c", "--config"], "json": ["--json"], "plot": ["--plot"]}
    for action in actions(command):
        if command == "compare" and action.option_strings and action.dest == "logs":
            continue  # a setting: a list in YAML
        if action.dest in metavars:
            assert action.metavar in metavars[action.dest], f"{command}: {action.dest} is {action.metavar}"
        if action.dest in flags:
            assert list(action.option_strings) == flags[action.dest], f"{command}: {action.option_strings}"
            assert action.nargs is None, f"{command}: {action.dest} takes one value"
        if "-o" in action.option_strings:
            assert action.dest == "out", f"{command}: -o is {action.dest}"


def test_commands_that_measure_write_json():
    for command in MEASURING:
        assert any(action.dest == "json" for action in actions(command)), command


def test_help_groups_the_commands_by_the_road_and_states_the_exit_codes(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    at = [shown.index(f"\n  {heading}:\n") for heading in ROAD]
    assert at == sorted(at)
    for start, end, names in zip(at, [*at[1:], len(shown)], ROAD.values(), strict=True):
        listed = re.findall(r"^    (\w+)  +\w", shown[start:end], re.MULTILINE)
        assert tuple(listed) == names
    assert "exit codes: 0 done, 1 an error that is named, 2 wrong usage, 130 interrupted" in shown


def test_json_on_standard_output_is_alone_there(arm_log: Path, capsys: pytest.CaptureFixture[str]):
    import json

    assert main(["inspect", str(arm_log), "--json", "-"]) == 0
    written = capsys.readouterr()
    assert json.loads(written.out)["messages"] > 1000 and "/joint_states" in written.err


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return script(tmp_path_factory.mktemp("completion") / "robopos.bash")


def script(path: Path) -> Path:
    import contextlib

    with path.open("w") as stream, contextlib.redirect_stdout(stream):
        assert main(["completion", path.suffix[1:]]) == 0
    return path


COMPLETE = """
source "$1"; shift
complete -p robopos > /dev/null || exit 3
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_shtab_robopos robopos "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["ins"], {"inspect"}),
        (["inspect", "--js"], {"--json"}),
        (["inspect", "ru"], {"run.mcap", "runs"}),
        (["inspect", "--plot", "ru"], {"run.mcap", "runs"}),
        (["evaluate", "ru"], {"runs"}),  # a bundle is a folder
        (["train", "-c", "my"], {"my.yaml"}),
        (["train", "--data.batch_"], {"--data.batch_size"}),
        (["compare", "--dry"], {"--dry-run"}),
        (["export", "runs", "--to", "on"], {"onnx"}),
        (["completion", "z"], {"zsh"}),
    ],
)
def test_bash_completes(bash: Path, tmp_path: Path, typed: list[str], wanted: set[str]):
    for name in ("run.mcap", "my.yaml"):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    command = ["bash", "-c", COMPLETE, "bash", str(bash), "robopos", *typed]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert set(done.stdout.split()) == wanted


def test_zsh_gets_a_script_that_names_every_command(tmp_path: Path):
    text = script(tmp_path / "robopos.zsh").read_text()
    assert text.startswith("#compdef robopos")
    for command in COMMANDS:
        assert f"\n    {command}:'" in text, command


def test_debug_is_taken_out_of_what_the_settings_parsers_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for command in ("train", "compare"):
        assert main([command, "--config", str(tmp_path / "no.yaml"), "--debug"]) == 1
        said = capsys.readouterr().err
        assert "Traceback" in said and "no.yaml" in said.splitlines()[-1] and "--debug" not in said
