"""`robopos serve`: what it hands on to the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from robopos.cli import main, ros_module


@pytest.fixture
def handed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The arguments that the node gets, for a bundle and more arguments."""
    (tmp_path / "bundle.yaml").write_text("")
    found: list[str] = []

    def serve(*arguments: str) -> list[str]:
        found.clear()
        monkeypatch.setattr(ros_module, "run_module", lambda module, given: found.extend(given))
        assert main(["serve", str(tmp_path), *arguments]) == 0
        return found

    return serve


def test_the_device_is_handed_on_only_when_it_is_given(handed_on, tmp_path: Path):
    file = tmp_path / "parameters.yaml"
    file.write_text("/**:\n  ros__parameters:\n    device: cuda\n")
    bundle = ["-p", f'bundle:="{tmp_path}"']
    assert handed_on("--params-file", str(file)) == ["--ros-args", "--params-file", str(file), *bundle]
    assert handed_on("--device", "cpu") == ["--ros-args", *bundle, "-p", 'device:="cpu"']
