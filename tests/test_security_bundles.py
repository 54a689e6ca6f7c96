"""Hostile bundles, checkpoints and YAML: refused by name, without running anything and without a huge network."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from conftest import training_config, write_yaml
from safetensors.torch import load_file, save_file
from security_support import told

from robopos.cli import main
from robopos.errors import ConfigError
from robopos.model import Bundle
from robopos.plain_yaml import read_yaml
from robopos.serving import Engine

HUGE = 10**12


@pytest.fixture
def bundle(trained: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(trained / "bundle", tmp_path / "bundle"))


def load(folder: Path) -> str:
    """What loading it for serving says."""
    return told(lambda: Engine.load(folder, device="cpu"))


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    path = folder / "bundle.yaml"
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(yaml.safe_dump(content))
    return folder


def laughs(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def merges(levels: int) -> str:
    lines = ["m0: &m0 {a: 1, b: 2}"]
    lines += [f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: 0}}" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (laughs(12), "stand for more than 1000000 nodes"),
        ("a: &a [*a]\n", "stand for more than 1000000 nodes"),
        ("x: !!python/object/apply:os.mkdir [owned]\n", "could not determine a constructor"),
        ("x: !!python/name:os.system\n", "could not determine a constructor"),
        ("x: " + "[" * 20_000 + "]" * 20_000 + "\n", "cannot be read as YAML"),
        ("x: " + "9" * 100_000 + "\n", "a number is too long"),
        ("x: 1" + ":59" * 100_000 + "\n", "a number is too long"),
        ("x: 1" + ":59" * 100_000 + ".5\n", "a number is too long"),
        ("x: 2001-99-99\n", "cannot be read as YAML"),
        ("x: !!bool foo\n", "cannot be read as YAML"),
        ("x: !!timestamp foo\n", "cannot be read as YAML"),
        ("x: " + "y" * 5_000_000 + "\n", "the limit is 4000000"),
    ],
    ids=lambda text: text[:30],
)
def test_yaml_has_limits_and_makes_plain_types_alone(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, before: str, said: str
) -> None:
    monkeypatch.chdir(bundle.parent)
    path = bundle / "bundle.yaml"
    path.write_text(before + path.read_text())
    assert said in load(bundle)
    assert not Path("owned").exists()


def test_merges_that_copy_many_entries_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(merges(4))
    assert read_yaml(path, ConfigError)["m3"] == {"a": 1, "b": 2, "k1": 0, "k2": 0, "k3": 0}
    monkeypatch.setattr("robopos.plain_yaml.MAX_NODES", 10_000)
    path.write_text(merges(200))
    with pytest.raises(ConfigError, match="merges of too many entries"):
        read_yaml(path, ConfigError)


def test_aliases_that_stand_for_little_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: &a [1, 2]\nb: [*a, *a]\n")
    assert read_yaml(tmp_path / "a.yaml", ConfigError) == {"a": [1, 2], "b": [[1, 2], [1, 2]]}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"context": HUGE, "window": 2 * HUGE}, "a number of tokens from 1 to 65536"),
        ({"window": HUGE}, "a number of tokens up to 131072"),
        ({"positions": "index-learned", "position_options": {"max_length": HUGE}}, "max_length is 1000000000000"),
        ({"positions": "time-fourier", "position_options": {"hidden": HUGE}}, "hidden is 1000000000000"),
        ({"positions": "time-fourier", "position_options": {"features": HUGE}}, "features is 1000000000000"),
        ({"positions": "time-relative", "position_options": {"buckets": HUGE}}, "buckets is 1000000000000"),
        ({"positions": ["none"]}, "model.positions is ['none'], must be of type str"),
        ({"context": 1.5}, "model.context is 1.5, must be of type int"),
        ({"context_s": float("nan")}, "model.context_s is nan"),
        ({"position_options": None}, "model.position_options is None"),
        ({"position_options": {"dim": 3}}, "describes no network|dim"),
        ({"position_options": {"max_period_s": "long"}}, "describes no network"),
    ],
    ids=str,
)
def test_a_short_text_cannot_describe_a_huge_network(bundle: Path, changes: dict[str, Any], said: str) -> None:
    answer = load(edited(bundle, lambda content: content["model"].update(changes)))
    assert str(bundle) in answer and any(part in answer for part in said.split("|")), answer


def test_features_and_targets_must_be_in_the_weights(bundle: Path) -> None:
    def widen(content: dict[str, Any]) -> None:
        stream = content["sequence"]["streams"][0]
        for name in ("fields", "transforms", "kinds", "units"):
            stream[name] += [stream[name][0]] * 2000
        features = 2000 + len(content["normalization"]["mean"])
        content["normalization"] |= {"mean": [0.0] * features, "std": [1.0] * features}

    before = load(edited(bundle, lambda content: None))
    assert before == ""
    assert "embed.weight must have shape (64, 4" in load(edited(bundle, widen))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"topic": 5}, "must be texts"),
        ({"schema": None}, "must be texts"),
        ({"fields": [1, 2]}, "fit|texts"),
        ({"clock": "moon"}, "clock, input or max_rate_hz has a wrong value"),
        ({"max_rate_hz": 0}, "clock, input or max_rate_hz has a wrong value"),
        ({"input": "no"}, "clock, input or max_rate_hz has a wrong value"),
        ({"encoding": "pickle"}, "encoding 'pickle' is not read"),
    ],
    ids=str,
)
def test_a_stream_of_a_bundle_is_what_it_must_be(bundle: Path, changes: dict[str, Any], said: str) -> None:
    answer = load(edited(bundle, lambda content: content["sequence"]["streams"][0].update(changes)))
    assert any(part in answer for part in said.split("|")) and answer


@pytest.mark.parametrize(
    "changes",
    [
        {"max_gap_s": float("nan")},
        {"max_gap_s": 1e300},
        {"max_lateness_s": "long"},
        {"horizons_s": [float("nan"), 1.0]},
        {"horizons_s": [0.25, 0.1]},
        {"reference": "x"},
        {"targets": [[HUGE, 0]]},
        {"streams": []},
    ],
    ids=str,
)
def test_a_sequence_of_a_bundle_is_what_it_must_be(bundle: Path, changes: dict[str, Any]) -> None:
    assert "sequence description" in load(edited(bundle, lambda content: content["sequence"].update(changes)))


def header(content: object) -> bytes:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(raw)) + raw


def tensor(shape: list[int], end: int) -> bytes:
    return header({"embed.weight": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}})


@pytest.mark.parametrize(
    "content",
    [
        struct.pack("<Q", 1 << 63),
        struct.pack("<Q", 1 << 40) + b"{}",
        tensor([10**6, 10**6], 4 * 10**12),
        tensor([1 << 62, 8], 0),
        tensor([0, 1 << 62], 0),
        header(b"[" * 200_000),
    ],
    ids=lambda content: content[:24].hex(),
)
def test_a_header_of_weights_that_lies(bundle: Path, content: bytes) -> None:
    (bundle / "model.safetensors").write_bytes(content)
    assert str(bundle) in load(bundle)


def test_weights_and_description_are_regular_files(bundle: Path) -> None:
    for name in ("model.safetensors", "bundle.yaml"):
        kept = (bundle / name).read_bytes()
        (bundle / name).unlink()
        os.mkfifo(bundle / name)
        assert "no regular file" in load(bundle)
        (bundle / name).unlink()
        (bundle / name).symlink_to("/dev/zero")
        assert "no regular file" in load(bundle)
        (bundle / name).unlink()
        (bundle / name).write_bytes(kept)
    for path in ("a\0b", "a" * 5000):
        assert told(lambda path=path: Bundle.load(path))


def test_weights_that_are_no_numbers_are_refused(bundle: Path) -> None:
    state = load_file(bundle / "model.safetensors")
    state["norm.weight"][0] = float("inf")
    save_file(state, bundle / "model.safetensors")
    assert "not finite" in load(bundle)


def test_a_checkpoint_is_read_safely_before_training_goes_on_from_it(
    trained: Path, arm_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "owned"),)

    # As torch before 2.6: what does not ask for safety runs what the file says.
    real = torch.load
    monkeypatch.setattr(torch, "load", lambda *a, **k: real(*a, **({"weights_only": False} | k)))
    checkpoint = torch.load(trained / "checkpoints" / "last.ckpt", weights_only=True)
    torch.save(checkpoint | {"more": Evil()}, tmp_path / "evil.ckpt")
    torch.save({"robopos": {}}, tmp_path / "empty.ckpt")
    (tmp_path / "noise.ckpt").write_bytes(os.urandom(1000))
    config = write_yaml(tmp_path / "train.yaml", training_config(arm_log))
    for name in ("evil", "empty", "noise"):
        path = str(tmp_path / f"{name}.ckpt")
        for command in (
            ["train", "--config", str(config), "--out", str(tmp_path / "out"), "--ckpt_path", path],
            ["bundle", path, "-o", str(tmp_path / "made")],
        ):
            assert main(command) == 1
            assert "not a checkpoint of robopos" in capsys.readouterr().err
    assert not (tmp_path / "owned").exists() and not (tmp_path / "made").exists()


@pytest.mark.parametrize("command", ["train", "compare"])
def test_a_configuration_makes_no_objects_by_yaml_tags(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"out: !!python/object/apply:os.mkdir ['{tmp_path}/owned']\n")
    assert main([command, "--config", str(path)]) == 1
    assert "could not determine a constructor" in capsys.readouterr().err
    assert not (tmp_path / "owned").exists()
