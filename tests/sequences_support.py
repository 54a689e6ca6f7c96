"""The settings of the arm's log, as the tests of sequences change them."""

from __future__ import annotations

from dataclasses import replace

from conftest import SEQUENCE

from robopos.sequences import InputStream, SequenceSettings, StreamSettings


def sequence_settings(**changes: object) -> SequenceSettings:
    streams = {name: StreamSettings(**values) for name, values in SEQUENCE["streams"].items()}
    return replace(SequenceSettings(**(SEQUENCE | {"streams": streams})), **changes)


def input_stream(name: str, fields: tuple[str, ...], kind: str = "linear") -> InputStream:
    """A stream of no log, whose fields the model sees as they are."""
    count = len(fields)
    return InputStream(
        name=name,
        topic=name,
        type="t",
        schema="s",
        encoding="cdr",
        fields=fields,
        transforms=("value",) * count,
        kinds=(kind,) * count,
        units=("",) * count,
        frame_ids=(),
        clock="header",
        role="observation",
        input=True,
        max_rate_hz=None,
        max_interpolation_s=1.0,
        interpolation="linear",
    )
