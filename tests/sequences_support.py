"""The settings of the arm's log, as the tests of sequences change them."""

from __future__ import annotations

from dataclasses import replace

from conftest import SEQUENCE

from robopos.sequences import (
    SequenceSettings,
    StreamSettings,
)


def sequence_settings(**changes: object) -> SequenceSettings:
    streams = {name: StreamSettings(**values) for name, values in SEQUENCE["streams"].items()}
    return replace(SequenceSettings(**(SEQUENCE | {"streams": streams})), **changes)
