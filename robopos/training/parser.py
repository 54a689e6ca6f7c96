"""Settings from YAML and the command line; a wrong one is one line with its file, its full name and a remedy."""

from __future__ import annotations

import re
from argparse import ArgumentParser as Parser
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

import yaml
from jsonargparse import ActionConfigFile, ArgumentParser  # type: ignore[attr-defined]
from lightning.pytorch.cli import LightningArgumentParser

from robopos.errors import ConfigError, UsageError
from robopos.settings import fits, type_word

# The top-level names that tell the other command's configuration, and what to do with it.
OTHERS = {
    "robopos compare": (
        {"data", "model"},
        "a configuration of `robopos train`: docs/howto/report.md makes a comparison of it",
    ),
    "robopos train": ({"schemes", "conditions"}, "a configuration of `robopos compare`"),
}
FEW = 16  # names that still fit a line
WRONG_VALUE = re.compile(r'Parser key "(?P<key>[^"]+)":.*(?:Got|Given) value: (?P<value>.*)', re.DOTALL)
MISSING = "the following arguments are required: "
UNKNOWN = "unrecognized arguments: "


class Fault(NamedTuple):
    """A setting of a file that cannot be taken, by its full name."""

    path: str
    said: str
    unknown: bool


class WrongValue(UsageError):
    """A value of another type; ``key`` is the name that the parser gave."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class ConfigFile(ActionConfigFile):
    """The option of the configuration file; complaints name the file."""

    def __call__(self, parser: Parser, cfg: Any, values: Any, option_string: str | None = None) -> None:
        path = Path(values)
        if not path.is_file():
            raise ConfigError(f"{values}: there is no such file (-c, --config)")
        content = read(path)
        names, what = OTHERS.get(parser.prog, (set(), ""))
        if names & set(content):
            raise ConfigError(f"{path}: is {what}")
        faults = list(_faults(parser, content))
        for fault in faults:
            if fault.unknown:
                raise ConfigError(f"{path}: {fault.path}{fault.said}")
        try:
            super().__call__(parser, cfg, values, option_string)  # type: ignore[no-untyped-call]
        except WrongValue as error:
            # Within dictionaries the parser knows the last name alone.
            full = (f"{f.path}{f.said}" for f in faults if f".{f.path}".endswith(f".{error.key}"))
            raise ConfigError(f"{path}: {next(full, error)}") from None
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None


def read(path: Path) -> Mapping[str, Any]:
    """The content of a YAML file of settings."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise ConfigError(f"{path}: is not YAML: {where}{error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, Mapping):
        raise ConfigError(f"{path}: holds no settings by name")
    return content


def _faults(parser: Parser, values: Mapping[str, Any], above: str = "") -> Iterator[Fault]:
    """What a parser would not take of a mapping, with names in full."""
    # A parser of jsonargparse has an action for each setting; settings within dictionaries only have types.
    settings = [action for action in parser._actions if not action.dest.endswith(".help")]
    hints = {action.dest: getattr(action, "_typehint", None) for action in settings}
    known = {dest[len(above) :].split(".")[0] for dest in hints if dest.startswith(above)}
    for name, value in values.items():
        path = f"{above}{str(name).removesuffix('+')}"  # NAME+ appends to a list
        if any(dest.startswith(f"{path}.") for dest in hints):
            if isinstance(value, Mapping):
                yield from _faults(parser, value, f"{path}.")
        elif path in hints:
            yield from _misfits(value, hints[path], path)
        else:
            yield _no_such(path, str(name), known)


def _misfits(value: object, hint: Any, path: str) -> Iterator[Fault]:
    if is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        known = get_type_hints(hint)
        for name, inner in value.items():
            if name in known:
                yield from _misfits(inner, known[name], f"{path}.{name}")
            else:
                yield _no_such(f"{path}.{name}", str(name), [field.name for field in fields(hint)])
    elif get_origin(hint) is dict and isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _misfits(inner, get_args(hint)[1], f"{path}.{name}")
    elif path.startswith("trainer.") or hint is None:
        return  # types of classes: only jsonargparse can say
    elif not fits(value, hint):
        yield Fault(path, f" is {value!r}, must be of type {type_word(hint)}", False)


def _no_such(path: str, name: str, known: Iterable[str]) -> Fault:
    return Fault(path, f": no such option{_proposal(name, known)}", True)


def _proposal(name: str, known: Iterable[str]) -> str:
    known = list(known)
    close = get_close_matches(name, known, 1, 0.7)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(sorted(known))}" if len(known) <= FEW else ""


def raise_named(parser: Parser, message: str, cause: BaseException | None) -> NoReturn:
    """A parser's complaint as an error of ours; a setting that checked itself says best what is wrong."""
    while cause is not None:
        if isinstance(cause, ConfigError):
            raise cause
        cause = cause.__cause__ or cause.__context__
    wrong = WRONG_VALUE.search(message)
    if wrong is not None:
        key, value = wrong["key"], wrong["value"]
        hint = next((getattr(a, "_typehint", None) for a in parser._actions if a.dest == key), None)
        allowed = f", must be of type {type_word(hint)}" if hint is not None else ": of another type than it must be"
        raise WrongValue(f"{key} is {' '.join(value.split())!r}{allowed}", key)
    if message.startswith(MISSING):
        names = message.removeprefix(MISSING)
        raise UsageError(f"{names}: must be given, in the file of -c CONFIG (`robopos init` drafts one) or as options")
    if message.startswith(UNKNOWN):
        unknown = message.removeprefix(UNKNOWN).split()[0]
        options = [option for action in parser._actions for option in action.option_strings]
        raise UsageError(f"{unknown}: no such option{_proposal(unknown.split('=')[0], options)}")
    raise UsageError(" ".join(message.split()))


class SettingsParser(ArgumentParser):
    """jsonargparse's parser with named errors."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise_named(self, message, ex)


class TrainingParser(LightningArgumentParser):
    """LightningCLI's parser with named errors."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise_named(self, message, ex)
