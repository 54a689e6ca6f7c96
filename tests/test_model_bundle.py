"""Bundles: exact, whole, and refused by name when they are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from robopos.errors import BundleError
from robopos.model import Bundle, bundle_hash


@pytest.fixture
def bundle(trained: Path, tmp_path: Path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(trained / "bundle", tmp_path / "bundle"))


def edit(folder: Path, **changes: object) -> None:
    path = folder / "bundle.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))


def test_a_saved_bundle_reads_back_the_same(bundle: Path, tmp_path: Path):
    first = Bundle.load(bundle)
    again = Bundle.load(first.save(tmp_path / "again"))
    assert again.layout == first.layout and again.settings == first.settings
    for name in ("mean", "std", "residual_scale", "low", "high"):
        np.testing.assert_array_equal(getattr(again.normalization, name), getattr(first.normalization, name))
    for name, tensor in first.network.state_dict().items():
        assert torch.equal(tensor, again.network.state_dict()[name])
    assert bundle_hash(tmp_path / "again") == bundle_hash(bundle)
    assert sorted(p.name for p in bundle.iterdir()) == ["README.md", "bundle.yaml", "model.safetensors"]


def test_the_description_tells_what_a_reader_needs(bundle: Path):
    told = yaml.safe_load((bundle / "bundle.yaml").read_text())
    joints = told["sequence"]["streams"][0]
    assert joints["topic"] == "joint_states" and joints["type"] == "sensor_msgs/msg/JointState"
    assert "float64[] position" in joints["schema"]
    assert joints["fields"] == ["position[shoulder]", "position[elbow]"] and joints["frame_ids"] == ["base"]
    assert all(isinstance(i, int) for values in told["increments"].values() for i in values) and told["increments"]
    low, high = told["limits"]["joints.position[shoulder]"]
    assert -1.3 < low < -1.0 and 1.0 < high < 1.3
    assert told["training"]["steps"] == 120 and told["metrics"][0]["skill_hold_last"] is not None


def test_saving_over_something_else_is_refused(bundle: Path, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match="not empty and not a bundle"):
        Bundle.load(bundle).save(tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "years of work"


def test_a_missing_file_is_named(bundle: Path, tmp_path: Path):
    with pytest.raises(BundleError, match="no bundle there"):
        Bundle.load(tmp_path / "nowhere")
    (bundle / "model.safetensors").unlink()
    with pytest.raises(BundleError, match=r"model\.safetensors: missing"):
        Bundle.load(bundle)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format": 99}, "format 99, this robopos .* reads format 1: update robopos"),
        ({"format": "one"}, "no format number"),
        ({"model": {"size": "small"}}, "does not fit bundle.yaml"),
        ({"model": {"colour": "red"}}, "model is 'colour', must be one of positions"),
        ({"normalization": {}}, "normalization.mean"),
        ({"sequence": {}}, "sequence description"),
        ({"increments": {}}, "increments of bundle.yaml and model.safetensors differ"),
    ],
)
def test_a_changed_description_is_refused_by_name(bundle: Path, changes: dict, match: str):
    if "model" in changes and "size" in changes["model"]:
        told = yaml.safe_load((bundle / "bundle.yaml").read_text())
        changes = {"model": told["model"] | changes["model"], "increments": told["increments"]}
    edit(bundle, **changes)
    with pytest.raises(BundleError, match=match):
        Bundle.load(bundle)


def test_weights_that_are_not_finite_are_refused(bundle: Path):
    state = load_file(bundle / "model.safetensors")
    state["norm.weight"][3] = float("nan")
    save_file(state, bundle / "model.safetensors")
    with pytest.raises(BundleError, match=r"weights norm\.weight are not finite"):
        Bundle.load(bundle)


def test_weights_that_are_not_finite_are_not_written(bundle: Path, tmp_path: Path):
    diverged = Bundle.load(bundle)
    with torch.no_grad():
        diverged.network.embed.weight[0, 0] = float("nan")
    with pytest.raises(BundleError, match=r"new: not written, the training diverged .*: the weights embed\.weight are"):
        diverged.save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_bundle_is_written_in_utf_8_whatever_the_locale(bundle: Path, tmp_path: Path):
    layout = Bundle.load(bundle).layout.to_dict()
    layout["streams"][0]["fields"][0] = "position[épaule]"
    written = "\n".join(
        [
            "from dataclasses import replace",
            "from robopos.model import Bundle",
            "from robopos.sequences import SequenceLayout",
            f"made = replace(Bundle.load({str(bundle)!r}), layout=SequenceLayout.from_dict({layout!a}))",
            f"made.save({str(tmp_path / 'new')!r})",
        ]
    )
    plain = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", written], env=plain, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Bundle.load(tmp_path / "new").layout.streams[0].fields[0] == "position[épaule]"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["bundle.yaml", "model.safetensors"]),
    place=st.floats(0, 1, exclude_max=True),
    length=st.integers(0, 40),
    byte=st.integers(0, 255),
)
def test_a_corrupted_bundle_loads_or_is_refused_by_name(
    trained: Path, tmp_path_factory: pytest.TempPathFactory, name: str, place: float, length: int, byte: int
):
    folder = Path(shutil.copytree(trained / "bundle", tmp_path_factory.mktemp("corrupt") / "bundle"))
    data = bytearray((folder / name).read_bytes())
    at = int(place * len(data))
    data[at : at + length] = bytes([byte]) * (length // 2)
    (folder / name).write_bytes(data)
    try:
        Bundle.load(folder)
    except BundleError as error:
        assert str(folder) in str(error)
