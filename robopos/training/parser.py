"""Settings from YAML and the command line; a wrong one is one clear line."""

from __future__ import annotations

from typing import NoReturn

from jsonargparse import ArgumentParser
from lightning.pytorch.cli import LightningArgumentParser

from robopos.errors import ConfigError


def raise_named(message: str, cause: BaseException | None) -> NoReturn:
    """A parser's complaint as a ``ConfigError``; a setting that checked itself says best what is wrong."""
    while cause is not None:
        if isinstance(cause, ConfigError):
            raise cause
        cause = cause.__cause__ or cause.__context__
    raise ConfigError(" ".join(message.split()))


class SettingsParser(ArgumentParser):
    """jsonargparse's parser with named errors."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise_named(message, ex)


class TrainingParser(LightningArgumentParser):
    """LightningCLI's parser with named errors."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise_named(message, ex)
