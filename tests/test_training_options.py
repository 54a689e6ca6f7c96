"""Several processes, averaging, compilation, augmentation, memory, standard deviations."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import training_config, write_yaml
from sequences_support import sequence_settings

from robopos.cli import main
from robopos.errors import ConfigError
from robopos.logs import iter_messages, read_log
from robopos.model import Bundle, ModelSettings
from robopos.sequences import SequenceDataset, SplitSettings, TokenColumns, log_streams, resolve_layout
from robopos.sequences.degrade import AugmentSettings, drop_bursts, jitter_stamps, thin
from robopos.training.data import SequenceData
from robopos.training.fit import fit
from robopos.training.module import SequenceModule


def train(folder: Path, config: dict, *options: str) -> int:
    path = write_yaml(folder / "train.yaml", config)
    return main(["train", "--config", str(path), "--out", str(folder / "run"), *options])


SCRIPT = """
import json, sys
import torch
from lightning import Trainer, seed_everything
from conftest import training_config
from robopos.sequences import SequenceSettings, StreamSettings
from robopos.model import ModelSettings
from robopos.training.data import SequenceData
from robopos.training.fit import quiet
from robopos.training.module import SequenceModule

if __name__ == "__main__":
    log, devices, batch_size, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    quiet()
    torch.set_num_threads(1)
    config = training_config(log)["data"]["sequence"]
    streams = {name: StreamSettings(**values) for name, values in config["streams"].items()}
    sequence = SequenceSettings(**(config | {"streams": streams}))
    data = SequenceData([log], sequence, batch_size=batch_size, batches_per_epoch=6)
    module = SequenceModule(ModelSettings(context=12, context_s=0.5, window=24, dropout=0.0))
    seed_everything(3)
    strategy = "ddp" if devices > 1 else "auto"
    trainer = Trainer(
        accelerator="cpu", devices=devices, strategy=strategy, max_steps=6, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )
    trainer.fit(module, datamodule=data)
    if trainer.is_global_zero:
        shown = {name: float(value) for name, value in trainer.callback_metrics.items()}
        total = sum(float(p.double().abs().sum()) for p in module.network.parameters())
        json.dump(shown | {"weights": total}, open(out, "w"))
"""


def test_two_processes_train_as_one_with_the_same_global_batch(arm_log: Path, tmp_path: Path):
    script = tmp_path / "ddp.py"
    script.write_text(SCRIPT)
    told = {}
    for devices, batch_size in ((1, 8), (2, 4)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = os.environ | {
            "PYTHONPATH": f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        out = tmp_path / f"{devices}.json"
        command = [sys.executable, str(script), str(arm_log), str(devices), str(batch_size), str(out)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        told[devices] = json.loads(out.read_text())
    for name in ("train_loss", "val_loss", "val_skill", "weights"):
        np.testing.assert_allclose(told[2][name], told[1][name], rtol=2e-5, err_msg=name)


def test_averaged_weights_and_early_stopping_come_by_configuration(arm_log: Path, tmp_path: Path):
    config = training_config(arm_log)
    config["trainer"] |= {
        "max_steps": 400,
        "callbacks": [
            {"class_path": "lightning.pytorch.callbacks.EMAWeightAveraging", "init_args": {"decay": 0.9}},
            {
                "class_path": "lightning.pytorch.callbacks.EarlyStopping",
                "init_args": {"monitor": "val_loss", "patience": 1, "min_delta": 10.0},
            },
        ],
    }
    assert train(tmp_path, config) == 0
    checkpoint = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)
    current, averaged = checkpoint["current_model_state"], checkpoint["state_dict"]
    assert any(not torch.equal(averaged[name], current[name]) for name in averaged)
    bundle = Bundle.load(tmp_path / "run" / "bundle")
    assert bundle.training["steps"] == 80  # the second validation was no better by 10
    for name, tensor in bundle.network.state_dict().items():
        assert torch.equal(tensor, averaged[f"network.{name}"])


def test_a_logger_of_the_configuration_comes_beside_csv_and_tensorboard(arm_log: Path, tmp_path: Path):
    config = training_config(arm_log)
    more = {"save_dir": str(tmp_path / "mine"), "name": "own", "version": ""}
    config["trainer"] |= {
        "max_steps": 4,
        "logger": {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": more},
    }
    assert train(tmp_path, config) == 0
    assert (tmp_path / "mine" / "own" / "metrics.csv").is_file()
    assert (tmp_path / "run" / "csv" / "metrics.csv").is_file() and list(
        (tmp_path / "run" / "tensorboard").glob("events.*")
    )


@pytest.mark.slow
@pytest.mark.compiler
def test_a_compiled_training_gives_the_eager_one_and_does_not_recompile(arm_log: Path, tmp_path: Path):
    told = {}
    for name, flag in (("eager", "false"), ("compiled", "true")):
        (tmp_path / name).mkdir()
        config = training_config(arm_log)
        config["trainer"]["max_steps"] = 10
        assert train(tmp_path / name, config, "--model.compile", flag) == 0
        told[name] = Bundle.load(tmp_path / name / "run" / "bundle").metrics
    for eager, compiled in zip(told["eager"], told["compiled"], strict=True):
        np.testing.assert_allclose(eager["rmse"], compiled["rmse"], rtol=1e-3)


def test_standard_deviations_are_honest(arm_log: Path, tmp_path: Path):
    config = training_config(arm_log, loss="gaussian")
    assert train(tmp_path, config) == 0
    rows = Bundle.load(tmp_path / "run" / "bundle").metrics
    covered = np.array([row["coverage_90"] for row in rows])
    assert (covered > 0.75).all() and (covered < 1.0).any() and abs(covered.mean() - 0.9) < 0.08, covered


def test_without_standard_deviations_there_is_no_coverage(trained: Path):
    assert all(row["coverage_90"] is None for row in Bundle.load(trained / "bundle").metrics)


def test_a_bundle_of_any_checkpoint(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    checkpoint = trained / "checkpoints" / "best.ckpt"
    assert main(["bundle", str(checkpoint), "-o", str(tmp_path / "again")]) == 0
    made, first = Bundle.load(tmp_path / "again"), Bundle.load(trained / "bundle")
    for name, tensor in first.network.state_dict().items():
        assert torch.equal(tensor, made.network.state_dict()[name])
    assert made.training["logs"] == first.training["logs"] and made.training["steps"] > 0
    (tmp_path / "no.ckpt").write_text("nothing")
    assert main(["bundle", str(tmp_path / "no.ckpt"), "-o", str(tmp_path / "no")]) == 1
    assert "no.ckpt: not a checkpoint of robopos" in capsys.readouterr().err
    assert main(["bundle", str(tmp_path / "gone.ckpt"), "-o", str(tmp_path / "no")]) == 1
    assert "gone.ckpt: no such checkpoint" in capsys.readouterr().err


def test_evaluate_draws_and_writes_what_it_found(trained: Path, arm_log: Path, tmp_path: Path):
    files = {name: tmp_path / f"out.{name}" for name in ("markdown", "plot", "mcap", "json")}
    options = [text for name, path in files.items() for text in (f"--{name}", str(path))]
    assert main(["evaluate", str(trained / "bundle"), str(arm_log), "--split", "test", *options]) == 0
    assert files["plot"].read_bytes().startswith(b"\x89PNG")
    rows = json.loads(files["json"].read_text())
    lines = files["markdown"].read_text().splitlines()
    assert len(lines) == len(rows) + 2 and f"{rows[0]['rmse']:.4g}" in lines[2]
    topics = {m.topic for m in iter_messages(files["mcap"])}
    assert topics == {"/predictor/prediction/joints", "/predictor/prediction/imu"}


def test_degraded_copies_are_trained_on_and_judged_by_the_truth(arm_log: Path):
    settings = sequence_settings()
    augment = AugmentSettings(copies=3, drop=0.5, burst_s=0.3, thin=2, jitter_s=0.002)
    data = SequenceData([str(arm_log)], settings, batch_size=8, batches_per_epoch=6, augment=augment, seed=5)
    module = SequenceModule(ModelSettings(context=12, context_s=0.5, window=24))
    fit(module, data, max_steps=6, seed=1)
    copies = data._copies
    assert len(copies) == 3 and len({len(c.table) for c in copies}) == 3
    assert all(len(c.table) < len(data.dataset.table) for c in copies)
    again = SequenceData([str(arm_log)], settings, augment=augment, seed=5)
    assert len(again.dataset.table) == len(data.dataset.table)
    for one, other in zip(copies, again._copies, strict=True):
        np.testing.assert_array_equal(one.table.features, other.table.features)
    with pytest.raises(ConfigError, match=r"augment\.copies is 0, must be > 0 with some degradation"):
        AugmentSettings(drop=0.5)


def test_a_damaged_log_stops_training_or_is_left_out(arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.mcap").write_bytes(arm_log.read_bytes())
    (folder / "broken.mcap").write_bytes(b"no log at all")
    config = training_config(arm_log)
    config["data"]["logs"] = [str(folder)]
    config["trainer"]["max_steps"] = 4
    assert train(tmp_path, config) == 1
    assert "broken.mcap" in capsys.readouterr().err
    assert train(tmp_path, config, "--data.on_damage", "skip") == 0
    assert "broken.mcap" in capsys.readouterr().out
    trained_on = Bundle.load(tmp_path / "run" / "bundle").training["logs"]
    assert [Path(path).name for path in trained_on] == ["a.mcap", "b.mcap"]


def test_degrading_takes_away_what_it_says(arm_log: Path):
    log = read_log(arm_log, log_streams(sequence_settings()))
    generator = np.random.default_rng(0)
    halved = thin(log, 2)
    np.testing.assert_array_equal(halved["joints"].time_ns, log["joints"].time_ns[::2])
    moved = jitter_stamps(log, 0.01, generator)["joints"]
    assert 8e6 < (moved.time_ns - log["joints"].time_ns).std() < 12e6
    np.testing.assert_array_equal(moved.arrival_ns, log["joints"].arrival_ns)
    burst = drop_bursts(log, 0.5, 4.0, generator)
    gaps = [np.diff(burst[name].arrival_ns).max() for name in burst]
    assert min(gaps) > 0.45e9 and 0.75 < len(burst["joints"]) / len(log["joints"]) < 0.97


def test_columns_in_host_memory_give_the_same_windows(arm_log: Path):
    log = read_log(arm_log, log_streams(sequence_settings()))
    dataset = SequenceDataset.build([log], resolve_layout(sequence_settings(), log), SplitSettings())
    normalization = dataset.fit_normalization()
    # The meta device stands for one that the columns are not on: all that arrives there was moved.
    columns = dataset.columns(normalization, "train", device="meta", store="cpu")
    assert isinstance(columns, TokenColumns) and columns.values.device.type == "cpu"
    batch = columns.batch(torch.tensor([100, 200]), 16)
    assert batch.targets.device.type == "meta" and batch.tokens.positions.time_ns.device.type == "meta"
    with pytest.raises(ConfigError, match=r"data\.memory is 'disk'"):
        SequenceData([str(arm_log)], sequence_settings(), memory="disk")
