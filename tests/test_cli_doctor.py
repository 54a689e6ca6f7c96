"""`robopos doctor`: what is found, what is missing, and what to do about it."""

from __future__ import annotations

from importlib.machinery import ModuleSpec

import pytest

from robopos.cli import findings


def test_an_extra_that_is_not_installed_has_its_remedy(monkeypatch: pytest.MonkeyPatch):
    there = {"rosbags", "google.protobuf", "onnx", "onnxruntime"}
    monkeypatch.setattr(findings, "find_spec", lambda name: ModuleSpec(name, None) if name in there else None)
    found = {finding.what: finding for finding in findings._extras()}
    assert [found[what].state for what in ("rosbags", "protobuf", "cache", "export")] == [
        "ok",
        "ok",
        "missing",
        "missing",
    ]
    assert found["export"].said == "onnxscript not installed: for export --to onnx"
    assert found["export"].remedy == "pip install 'robopos[export]'"


def test_a_module_whose_parent_is_missing_is_missing():
    assert not findings._is_there("nowhere.at.all") and findings._is_there("importlib.util")


@pytest.mark.parametrize(
    ("domain", "state"),
    [("", "ok"), ("0", "ok"), ("232", "ok"), ("233", "missing"), ("abc", "missing"), ("-1", "missing")],
)
def test_a_domain_is_a_number_from_0_to_232(monkeypatch: pytest.MonkeyPatch, domain: str, state: str):
    monkeypatch.setenv("ROS_DOMAIN_ID", domain)
    finding = findings._domain()
    assert finding.state == state and bool(finding.remedy) == (state != "ok")


def test_a_missing_compiler_and_a_missing_library_are_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert findings._compiler().state == "missing" and "apt install g++" in findings._compiler().remedy
    monkeypatch.setattr(findings, "CORE", ("numpy", "no-such-library"))
    states = {finding.what: finding.state for finding in findings._core()}
    assert states == {"robopos": "ok", "numpy": "ok", "no-such-library": "broken"}
