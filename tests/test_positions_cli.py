"""`robopos check` on small models, `robopos plot positions` to a picture."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SEQUENCE

from robopos.cli import main
from robopos.logs import read_log
from robopos.model import Bundle, ModelSettings, SequenceTransformer
from robopos.sequences import (
    SequenceDataset,
    SequenceSettings,
    SplitSettings,
    StreamSettings,
    log_streams,
    resolve_layout,
)


def bundle(folder: Path, log: Path, positions: str, context_s: float | None = None, **options: object) -> Path:
    """A network as it starts, but for larger biases, with all that makes it a bundle."""
    torch.manual_seed(0)
    streams = {name: StreamSettings(**stream) for name, stream in SEQUENCE["streams"].items()}
    sequence = SequenceSettings(**(SEQUENCE | {"streams": streams}))
    read = read_log(log, log_streams(sequence))
    layout = resolve_layout(sequence, read)
    settings = ModelSettings(positions=positions, position_options=options, context=12, context_s=context_s, window=24)
    network = SequenceTransformer(layout, settings)
    # At its start a network hardly looks at its neighbours; what is checked is whether it could.
    for name, parameter in network.named_parameters():
        if "qkv" in name or "out.weight" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    dataset = SequenceDataset.build([read], layout, SplitSettings())
    return Bundle(layout, settings, dataset.fit_normalization(), network).save(folder / "bundle")


def check(capsys: pytest.CaptureFixture, folder: Path, log: Path) -> tuple[int, dict[str, str], str]:
    code = main(["check", str(folder), str(log)])
    printed = capsys.readouterr()
    lines = list(printed.out.splitlines()[1:])
    return code, {line[7:].split(":")[0]: line.split()[0] for line in lines}, printed.err


@pytest.mark.parametrize("positions", ["time-rotary", "time-sinusoidal", "time-alibi"])
def test_a_sound_model_passes_every_check(
    positions: str, tmp_path: Path, arm_log: Path, capsys: pytest.CaptureFixture
) -> None:
    code, marks, _ = check(capsys, bundle(tmp_path, arm_log, positions, context_s=0.2), arm_log)
    assert code == 0
    assert set(marks.values()) == {"ok"}
    assert {"position reaches the last output", "padding is invisible"} < set(marks)


def test_nothing_is_promised_of_a_scheme_without_time(
    tmp_path: Path, arm_log: Path, capsys: pytest.CaptureFixture
) -> None:
    code, marks, _ = check(capsys, bundle(tmp_path, arm_log, "index-rotary"), arm_log)
    assert code == 0
    assert marks["time reaches the last output"] == "-"
    assert marks["position reaches the last output"] == "ok"


def test_a_table_shorter_than_the_windows_fails(tmp_path: Path, arm_log: Path, capsys: pytest.CaptureFixture) -> None:
    code, marks, error = check(capsys, bundle(tmp_path, arm_log, "time-learned", max_s=0.05), arm_log)
    assert code == 1
    assert marks["the table of time-learned is long enough"] == "FAILED"
    assert "checks failed" in error


def test_periods_shorter_than_the_windows_fail(tmp_path: Path, arm_log: Path, capsys: pytest.CaptureFixture) -> None:
    folder = bundle(tmp_path, arm_log, "time-rotary", min_period_s=0.01, max_period_s=0.05)
    code, marks, _ = check(capsys, folder, arm_log)
    assert code == 1
    assert marks["the longest period of time-rotary spans a window"] == "FAILED"


@pytest.mark.parametrize("scheme", ["index-sinusoidal+time-rotary", "time-alibi", "index-relative", "time-learned"])
def test_a_scheme_is_drawn(scheme: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    picture = tmp_path / "scheme.png"
    assert main(["plot", "positions", scheme, "--dim", "32", "--heads", "4", "-o", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none"], "'none' has nothing to draw"),
        (["time-rotatory"], "unknown scheme 'time-rotatory'"),
        (["time-rotary", "--option", "max_period_s"], "must be NAME=VALUE"),
        (["time-rotary", "--option", "max_period_s=0.001"], "max_period_s=0.001"),
        (["time-rotary", "--span-s", "0"], "above 0 s"),
        (["time-rotary", "-o", "nowhere/at/all.png"], "cannot be written"),
    ],
)
def test_what_cannot_be_drawn_is_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["plot", "positions", *arguments]) == 1
    assert message in capsys.readouterr().err
