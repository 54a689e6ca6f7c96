"""Resume: bit for bit, the same settings, all rows of metrics; and no training replaced by accident."""

from __future__ import annotations

import copy
import reprlib
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
from conftest import arm_messages, training_config, write_yaml
from lightning import Callback

from robopos.cli import main
from robopos.logs import write_log
from robopos.model import Bundle


def train(folder: Path, config: dict, *options: str) -> int:
    path = write_yaml(folder / "train.yaml", config)
    return main(["train", "--config", str(path), "--out", str(folder / "run"), *options])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return torch.load(folder / "run" / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]


def rows(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "run" / "csv" / "metrics.csv")


class Killer(Callback):
    """Ends a training as a power cut would: in the middle of an epoch, without a word."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            raise SystemExit(9)


@pytest.mark.parametrize("every", [None, 7])
def test_a_killed_training_goes_on_as_if_it_had_not_been(arm_log: Path, tmp_path: Path, every: int | None):
    config = training_config(arm_log, dropout=0.2)
    config["data"]["batches_per_epoch"] = 12
    config["trainer"] |= {"max_steps": 36, "log_every_n_steps": 5}
    if every is not None:
        # Checkpoints in the middle of an epoch too.
        more = {"dirpath": "FOLDER", "every_n_train_steps": every, "save_top_k": 1, "filename": "middle"}
        more |= {"enable_version_counter": False}
        checkpoint = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": more}
        config["trainer"]["callbacks"] = [checkpoint]

    def made(folder: Path) -> dict:
        folder.mkdir()
        ready = copy.deepcopy(config)
        for callback in ready["trainer"].get("callbacks", []):
            callback["init_args"]["dirpath"] = str(folder / "middle")
        return ready

    assert train(tmp_path / "whole", made(tmp_path / "whole")) == 0
    cut = made(tmp_path / "cut")
    killer = {"class_path": "test_training_resume.Killer", "init_args": {"step": 29}}
    killed = copy.deepcopy(cut)
    killed["trainer"]["callbacks"] = [*killed["trainer"].get("callbacks", []), killer]
    with pytest.raises(SystemExit):
        train(tmp_path / "cut", killed)
    resume = "last" if every is None else str(tmp_path / "cut" / "middle" / "middle.ckpt")
    if every is not None:
        assert torch.load(resume, weights_only=True)["global_step"] == 28
    assert train(tmp_path / "cut", cut, "--ckpt_path", resume) == 0
    here, there = weights(tmp_path / "whole"), weights(tmp_path / "cut")
    for name, tensor in here.items():
        assert torch.equal(tensor, there[name]), name
    pd.testing.assert_frame_equal(rows(tmp_path / "whole"), rows(tmp_path / "cut"))


@pytest.fixture(scope="module")
def begun(arm_log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a configuration and a training of 50 steps of 120."""
    folder = tmp_path_factory.mktemp("begun")
    assert train(folder, training_config(arm_log), "--trainer.max_steps", "50") == 0
    return folder


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--model.network.context", "20"], "model.network.context is 20, in CHECKPOINT it is 12"),
        (
            ["--model.network.positions", "time-sinusoidal"],
            "model.network.positions is 'time-sinusoidal', in CHECKPOINT it is 'time-rotary'",
        ),
        (["--model.optimizer.learning_rate", "0.1"], "model.optimizer.learning_rate is 0.1, in CHECKPOINT it is 0.002"),
        (["--data.sequence.horizons_s", "[0.2]"], "data.sequence.horizons_s is [0.2], in CHECKPOINT it is [0.1, 0.25]"),
        (
            ["--data.sequence.streams.joints.clock", "log"],
            "data.sequence.streams.joints.clock is 'log', in CHECKPOINT it is 'header'",
        ),
        (["--data.split.test", "0.2"], "data.split.test is 0.2, in CHECKPOINT it is 0.15"),
    ],
)
def test_other_settings_than_the_checkpoint_s_are_refused(
    begun: Path, arm_log: Path, capsys: pytest.CaptureFixture, options: list[str], said: str
):
    run = begun / "run"
    saved = (run / "csv" / "config.yaml").read_text()
    assert train(begun, training_config(arm_log), "--ckpt_path", "last", *options) == 1
    expected = said.replace("CHECKPOINT", str(run / "checkpoints" / "last.ckpt"))
    expected += f": repeat the options of the first run: {run / 'csv' / 'config.yaml'} holds them"
    assert capsys.readouterr().err.strip() == f"robopos train: {expected}"
    assert (run / "csv" / "config.yaml").read_text() == saved


def test_other_data_than_the_checkpoint_s_are_refused(
    begun: Path, arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    other = write_log(tmp_path / "other.mcap", arm_messages(seed=5))
    checkpoint = begun / "run" / "checkpoints" / "last.ckpt"
    assert train(begun, training_config(other), "--ckpt_path", "last") == 1
    assert capsys.readouterr().err.strip() == (
        f"robopos train: data.logs: the training data are not those of {checkpoint}, which began on "
        f"{reprlib.repr([str(arm_log)])}: give the same logs, or -o names another folder for a new training"
    )
    # The same log under another name is the same data.
    moved = tmp_path / "moved.mcap"
    moved.write_bytes(arm_log.read_bytes())
    assert train(begun, training_config(moved), "--ckpt_path", "last") == 0


def test_a_trained_bundle_is_not_replaced_unless_asked(
    begun: Path, arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    config, run = training_config(arm_log), begun / "run"
    weights_before = (run / "bundle" / "model.safetensors").read_bytes()
    assert train(begun, config) == 1
    choices = "--ckpt_path last goes on from it, --force replaces it, -o names another folder"
    assert capsys.readouterr().err.strip() == f"robopos train: {run} holds a trained bundle: {choices}"
    assert (run / "bundle" / "model.safetensors").read_bytes() == weights_before
    # Killed before its bundle: the checkpoints are worth as much.
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "last.ckpt").touch()
    assert train(tmp_path, config) == 1
    assert "run holds checkpoints: --ckpt_path last" in capsys.readouterr().err
    assert train(tmp_path, config, "--force", "--trainer.max_steps", "4") == 0
    assert Bundle.load(tmp_path / "run" / "bundle").training["steps"] == 4
    assert "force: false" in (tmp_path / "run" / "csv" / "config.yaml").read_text()


def steps_of(run: Path) -> dict[str, int]:
    return {
        name: torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)["global_step"]
        for name in ("best", "last")
    }


def test_the_last_checkpoint_is_the_last_and_the_best_the_best(arm_log: Path, tmp_path: Path):
    config = training_config(arm_log)
    config["data"]["batches_per_epoch"] = 20
    # Too small a step to change a weight: no validation is better than the first.
    config["model"]["optimizer"] = {"learning_rate": 1e-30, "weight_decay": 0.0}
    assert train(tmp_path, config, "--trainer.max_steps", "50") == 0
    assert steps_of(tmp_path / "run") == {"best": 20, "last": 50}
    assert Bundle.load(tmp_path / "run" / "bundle").training["steps"] == 20
    validated = rows(tmp_path).dropna(subset="val_loss").step.tolist()
    assert validated == [19, 39, 49], "the last step is validated too"
    assert train(tmp_path, config, "--trainer.max_steps", "70", "--ckpt_path", "last") == 0
    assert steps_of(tmp_path / "run") == {"best": 20, "last": 70}


def test_a_training_that_stops_early_can_be_resumed(arm_log: Path, tmp_path: Path):
    config = training_config(arm_log)
    config["data"]["batches_per_epoch"] = 10
    config["model"]["optimizer"] = {"learning_rate": 1e-30, "weight_decay": 0.0}
    stopping = {"monitor": "val_loss", "patience": 2}
    config["trainer"]["callbacks"] = [
        {"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": stopping}
    ]
    assert train(tmp_path, config) == 0
    assert steps_of(tmp_path / "run") == {"best": 10, "last": 30}
    assert train(tmp_path, config, "--ckpt_path", "last") == 0
    assert steps_of(tmp_path / "run")["last"] == 40


def test_a_resumed_training_gives_no_advice_of_lightning(begun: Path, arm_log: Path):
    command = [sys.executable, "-m", "robopos", "train", "-c", begun / "train.yaml", "-o", begun / "run"]
    command += ["--ckpt_path", "last", "--trainer.max_steps", "60"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0 and "Warning" not in done.stderr, done.stderr
