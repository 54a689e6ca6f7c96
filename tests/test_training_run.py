"""Training from the command line: what it writes, that it learns, what it refuses."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from conftest import changed, training_config, write_yaml

from robopos.cli import main
from robopos.errors import ConfigError
from robopos.model import Bundle
from robopos.training.module import SequenceModule


def test_a_run_leaves_bundle_checkpoints_and_logs(trained: Path):
    assert Bundle.load(trained / "bundle").settings.positions == "time-rotary"
    assert {p.name for p in (trained / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    metrics = pd.read_csv(trained / "csv" / "metrics.csv")
    assert {"val_loss", "val_skill", "train_loss"} <= set(metrics.columns)
    assert list((trained / "tensorboard").glob("events.*"))
    assert (trained / "csv" / "config.yaml").is_file()


def test_a_training_beats_holding_the_last_value(trained: Path):
    rows = Bundle.load(trained / "bundle").metrics
    skills = [row["skill_hold_last"] for row in rows]
    assert np.mean(skills) > 0.3, skills
    assert all(row["count"] > 50 and math.isfinite(row["rmse"]) for row in rows)


def test_a_checkpoint_holds_plain_types_and_gives_the_bundle(trained: Path):
    path = trained / "checkpoints" / "best.ckpt"
    torch.load(path, weights_only=True)
    module = SequenceModule.from_checkpoint(str(path))
    bundle = Bundle.load(trained / "bundle")
    for name, tensor in bundle.network.state_dict().items():
        assert torch.equal(tensor, module.network.state_dict()[name])


def test_a_checkpoint_that_would_run_code_is_refused(tmp_path: Path):
    class Evil:
        def __reduce__(self):
            return (Path(tmp_path / "owned").touch, ())

    torch.save({"robopos": {}, "state_dict": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(ConfigError, match="not a checkpoint of robopos"):
        SequenceModule.from_checkpoint(str(tmp_path / "evil.ckpt"))
    assert not (tmp_path / "owned").exists()


def test_training_goes_on_from_the_last_checkpoint(arm_log: Path, tmp_path: Path):
    config = write_yaml(tmp_path / "train.yaml", training_config(arm_log))
    command = ["train", "--config", str(config), "--out", str(tmp_path / "run")]
    assert main([*command, "--trainer.max_steps", "50"]) == 0
    assert main([*command, "--ckpt_path", "last"]) == 0
    resumed = Bundle.load(tmp_path / "run" / "bundle")
    assert resumed.training["steps"] == 120


def test_the_same_seed_gives_the_same_weights(arm_log: Path, trained: Path, tmp_path: Path):
    config = write_yaml(tmp_path / "train.yaml", training_config(arm_log))
    assert main(["train", "--config", str(config), "--out", str(tmp_path / "run")]) == 0
    here, there = (Bundle.load(folder / "bundle").network.state_dict() for folder in (trained, tmp_path / "run"))
    for name, tensor in here.items():
        assert torch.equal(tensor, there[name]), name


@pytest.mark.parametrize("scheme", ["none", "index-learned", "index-sinusoidal+time-rotary"])
@pytest.mark.parametrize("loss", ["gaussian"])
def test_other_schemes_and_losses_train(arm_log: Path, tmp_path: Path, scheme: str, loss: str):
    config = training_config(arm_log, positions=scheme, loss=loss)
    config["trainer"]["max_steps"] = 4
    path = write_yaml(tmp_path / "train.yaml", config)
    assert main(["train", "--config", str(path), "--out", str(tmp_path / "run")]) == 0
    bundle = Bundle.load(tmp_path / "run" / "bundle")
    assert bundle.settings.positions == scheme and bundle.settings.loss == loss


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_half_precision_trains_to_a_float32_bundle(arm_log: Path, tmp_path: Path, precision: str):
    config = training_config(arm_log)
    config["trainer"] |= {"max_steps": 80, "precision": precision}
    path = write_yaml(tmp_path / "train.yaml", config)
    assert main(["train", "--config", str(path), "--out", str(tmp_path / "run")]) == 0
    bundle = Bundle.load(tmp_path / "run" / "bundle")
    assert all(p.dtype == torch.float32 for p in bundle.network.parameters())
    assert np.mean([row["skill_hold_last"] for row in bundle.metrics]) > 0.3


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("data.logs", ["nowhere.mcap"], "nowhere.mcap"),
        ("data.batch_size", 0, "data.batch_size is 0"),
        ("data.batch_size", "many", "batch_size"),
        ("data.sequence.horizons_s", [], "horizons_s"),
        ("data.sequence.streams.imu.topic", "/lidar", "lidar"),
        ("data.sequence.streams.imu.fields", ["temperature"], "temperature"),
        ("data.sequence.targets", {"imu": ["temperature"]}, "temperature"),
        ("model.network.positions", "time-quaternion", "time-quaternion"),
        ("model.network.position_options", {"colour": 3}, "colour"),
        ("model.network.size", "huge", "network.size is 'huge'"),
        ("model.network.contxt", 3, "contxt"),
        ("model.optimizer", {"learning_rate": -1.0}, "learning_rate is -1.0"),
        ("trainer.max_stepz", 3, "max_stepz"),
        ("data.split", {"validation": 0.7, "test": 0.7}, "split.validation + split.test"),
    ],
)
def test_a_wrong_option_is_one_line_that_names_it(
    arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture, path: str, value: object, said: str
):
    config = changed(training_config(arm_log), path, value)
    written = write_yaml(tmp_path / "train.yaml", config)
    assert main(["train", "--config", str(written), "--out", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr().err.strip().splitlines()
    errors = [line for line in shown if line.startswith("robopos train: ")]
    assert len(errors) == 1 and said in errors[0] and "Traceback" not in "".join(shown)
    assert not (tmp_path / "run" / "bundle").exists()
