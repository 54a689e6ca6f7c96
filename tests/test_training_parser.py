"""Wrong settings and options: one line with file, full name and remedy; exit codes; the help."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import changed, training_config, write_yaml
from sequences_support import sequence_settings

from robopos.cli import main
from robopos.model import ModelSettings
from robopos.training.band import band_notes
from robopos.training.data import SequenceData


def said(capsys: pytest.CaptureFixture) -> str:
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0].split(": ", 1)[1]


@pytest.mark.parametrize(
    ("path", "value", "line"),
    [
        (
            "data.sequence.streams.joints.feilds",
            ["position"],
            "data.sequence.streams.joints.feilds: no such option; did you mean fields?",
        ),
        ("data.sequence.horizon_s", [1.0], "data.sequence.horizon_s: no such option; did you mean horizons_s?"),
        ("model.network.contxt", 3, "model.network.contxt: no such option; did you mean context?"),
        ("data.batch_size", "many", "data.batch_size is 'many', must be of type int"),
        ("data.sequence.horizons_s", "fast", "data.sequence.horizons_s is 'fast', must be of type list[float]"),
        (
            "data.sequence.streams.joints.fields",
            3,
            "data.sequence.streams.joints.fields is 3, must be of type list[str]",
        ),
    ],
)
def test_a_wrong_setting_of_a_file_is_named_in_full(
    arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture, path: str, value: object, line: str
):
    file = write_yaml(tmp_path / "my.yaml", changed(training_config(arm_log), path, value))
    assert main(["train", "-c", str(file)]) == 1
    assert said(capsys) == f"{file}: {line}"


def test_a_broken_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture):
    file = tmp_path / "my.yaml"
    file.write_text("data: [1, {\n")
    assert main(["train", "-c", str(file)]) == 1
    assert said(capsys).startswith(f"{file}: is not YAML: line 2, column 1: ")


def test_the_configuration_of_another_command_is_told(arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    file = write_yaml(tmp_path / "my.yaml", training_config(arm_log))
    assert main(["compare", "-c", str(file)]) == 1
    assert said(capsys) == (
        f"{file}: is a configuration of `robopos train`: docs/howto/report.md makes a comparison of it"
    )
    file = write_yaml(tmp_path / "study.yaml", {"logs": [str(arm_log)], "schemes": ["none"]})
    assert main(["train", "-c", str(file)]) == 1
    assert said(capsys) == f"{file}: is a configuration of `robopos compare`"


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_wrong_command_line_is_wrong_usage(command: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    assert main([command, "--nonsense"]) == 2
    assert said(capsys) == "--nonsense: no such option"
    assert main([command]) == 2
    assert "must be given, in the file of -c CONFIG (`robopos init` drafts one)" in said(capsys)
    assert main([command, "-c", str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml: there is no such file" in said(capsys)


@pytest.mark.parametrize(
    ("options", "code", "line"),
    [
        (["--data.batch_size", "many"], 2, "data.batch_size is 'many', must be of type int"),
        (["--model.network.context_s", "long"], 2, "model.network.context_s is 'long', must be of type float | None"),
        (["--data.seed", "-1"], 1, "data.seed is -1, must be a whole number >= 0"),
        (["--seed_everything", "-1"], 1, "seed_everything is -1, must be a whole number from 0 to 4294967295"),
        (["--trainer.accumulate_grad_batches", "0"], 1, "trainer.accumulate_grad_batches is 0, must be a whole"),
        (["--trainer.overfit_batches", "0.01"], 1, "trainer: You requested to check 0.01 of the"),
        (["--data.sequence.horizon_s", "[1]"], 2, "--data.sequence.horizon_s: no such option; did you mean --data.seq"),
        (["--model.network.context", "0"], 1, "model.network.context is 0, must be"),
        (["--data.split.test", "3"], 1, "data.split.test is 3.0, must be"),
        (["--trainer.max_steps", "0"], 1, "trainer.max_steps is 0, must be a number of steps >= 1"),
        (["--trainer.accelerator", "abacus"], 1, "trainer: You selected an invalid accelerator name"),
        (["--data.sequence.horizons_s", "[60]"], 1, "the validation split has no token"),
    ],
)
def test_a_wrong_option_is_named_as_it_is_typed(
    arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture, options: list[str], code: int, line: str
):
    file = write_yaml(tmp_path / "my.yaml", training_config(arm_log))
    assert main(["train", "-c", str(file), "-o", str(tmp_path / "run"), *options]) == code
    told = said(capsys)
    assert told.startswith(line)
    if "horizons_s" in options[0]:
        assert "61 s as a guard, the furthest horizon of 60 s and 1 s of interpolation: shorten horizons_s" in told


def test_the_help_starts_with_the_project_s_own_options(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "Lightning Trainer command line tool" not in shown and ":paramref:" not in shown
    groups = ["Train a model on recorded logs", "A causal Transformer", "Recorded logs for", "aspect of training"]
    places = [shown.index(group) for group in groups]
    assert places == sorted(places)


def test_a_band_that_does_not_hold_what_it_says_is_noted(arm_log: Path):
    settings = sequence_settings()
    dataset = SequenceData([str(arm_log)], settings).dataset
    step_s = dataset.median_interval_s()
    said = f"context_s 1e-05 s is shorter than the median step {step_s:.3g} s: a token sees only itself"
    assert band_notes(dataset, ModelSettings(context_s=1e-5)) == [f"{said} (model.network.context_s)"]
    # About 57 tokens a second: 12 tokens end after 0.2 s, 64 after 1.1 s.
    (note,) = band_notes(dataset, ModelSettings(context=12, context_s=0.5))
    assert note.startswith("100 % of tokens reach context (12 tokens) before context_s (0.5 s)")
    assert band_notes(dataset, ModelSettings(context=64, context_s=0.5)) == []
    assert band_notes(dataset, ModelSettings(context=64)) == []
