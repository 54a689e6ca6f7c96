"""The exported step: the network's numbers, its names in the file, and what is refused."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import START_NS

from robopos.cli import main
from robopos.errors import ConfigError, ServingError
from robopos.logs import iter_messages
from robopos.model import Bundle, SequenceTransformer
from robopos.model.defaults import fill_position_options
from robopos.serving import Engine
from robopos.serving.export import EXPORTERS, check_step, export_step
from robopos.serving.exported import FORMAT

NAMES = {"/joint_states": "joints", "/imu": "imu"}


def predictions(engine: Engine, log: Path, count: int, every: int = 1) -> np.ndarray:
    made = []
    for number, message in enumerate(list(iter_messages(log))[:count]):
        engine.push_raw(NAMES[message.topic], message.data, message.log_time_ns)
        if number % every == 0:
            made.append(engine.predict().values)
    return np.stack(made)


@pytest.fixture(scope="module")
def onnx_file(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"{package} comes with robopos[export]")
    out = tmp_path_factory.mktemp("export") / "model.onnx"
    assert main(["export", str(trained / "bundle"), "--to", "onnx", "-o", str(out), "--json", str(out) + ".json"]) == 0
    return out


def test_export_says_how_far_the_file_is_from_the_network(onnx_file: Path):
    told = json.loads(Path(f"{onnx_file}.json").read_text())
    assert told["steps"] >= 20 and told["tokens"] > 100 and told["block"] == 8
    assert 0 < told["largest"] < 1e-5 and told["rms"] < 1e-6
    assert [path.name for path in onnx_file.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("every", [1, 13])
def test_the_engine_serves_from_a_file(onnx_file: Path, trained: Path, arm_log: Path, every: int):
    engine = Engine.load(trained / "bundle", device="cpu", step=onnx_file)
    plain = Engine.load(trained / "bundle", device="cpu")
    mine, theirs = (predictions(e, arm_log, 120, every) for e in (engine, plain))
    np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert engine.mode == "stream" and engine.stats.absorbed == plain.stats.absorbed


def test_any_runtime_runs_the_file_by_names_and_shapes(onnx_file: Path, trained: Path):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(onnx_file), providers=["CPUExecutionProvider"])
    told = json.loads(session.get_modelmeta().custom_metadata_map["robopos"])
    assert told["format"] == FORMAT and told["streams"] == ["joints", "imu"] and told["horizons_s"] == [0.1, 0.25]
    assert told["features"][0] == "joints.position[shoulder]" and len(told["targets"]) == 3
    given = {i.name: (i.type, i.shape) for i in session.get_inputs()}
    assert {name: shape for name, (_, shape) in told["inputs"].items()} == {n: s for n, (_, s) in given.items()}
    assert given["token_time_ns"] == ("tensor(int64)", [8])
    assert given["ring_keys_1"] == ("tensor(float)", [1, 4, 12, 16])
    types = {"float32": np.float32, "float64": np.float64, "int64": np.int64, "bool": bool}
    feed = {name: np.zeros(shape, types[dtype]) for name, (dtype, shape) in told["inputs"].items()}
    feed["token_time_ns"][:] = START_NS
    feed["token_valid"][:3] = True
    feed["token_index"] = np.arange(8)
    feed["horizons_s"][:] = told["horizons_s"]
    outputs = dict(zip(told["outputs"], session.run(told["outputs"], feed), strict=True))
    assert outputs["encoded"].shape == (8, 64) and outputs["residual"].shape == (8, 2, 3)
    assert outputs["new_keys"].shape == outputs["new_values"].shape == (2, 1, 4, 8, 16)
    network = Bundle.load(trained / "bundle").network
    expected, _ = network.predict(torch.from_numpy(outputs["encoded"]))
    np.testing.assert_allclose(outputs["residual"], expected.detach().numpy(), atol=1e-5)


def test_files_of_several_sizes_work_together(onnx_file: Path, trained: Path, arm_log: Path, tmp_path: Path):
    bundle = Bundle.load(trained / "bundle")
    export_step(bundle, "onnx", tmp_path / "one.onnx", block=1)
    engine = Engine(bundle, device="cpu", step=[onnx_file, tmp_path / "one.onnx"])
    plain = Engine.load(trained / "bundle", device="cpu")
    mine, theirs = (predictions(e, arm_log, 40, every=9) for e in (engine, plain))
    np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert engine.stats.steps == 1 + 4 * 2  # blocks of 8 and 1


def test_a_step_that_drops_its_cache_is_found(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    bundle = Bundle.load(trained / "bundle")
    network = bundle.network

    def forgetful(tokens, ring):
        return network.step(tokens, ring._replace(valid=torch.zeros_like(ring.valid)))

    assert check_step(bundle, network.step, 8).largest == 0.0
    assert check_step(bundle, forgetful, 8).largest > 0.01
    monkeypatch.setattr("robopos.serving.export.load_step", lambda *_: (8, forgetful))
    monkeypatch.setitem(EXPORTERS, "onnx", lambda module, inputs, metadata, out: out.touch())
    with pytest.raises(ServingError, match="the exported step differs from the network by"):
        export_step(bundle, "onnx", tmp_path / "bad.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_gives_no_numbers_is_found(trained: Path):
    bundle = Bundle.load(trained / "bundle")

    def broken(tokens, ring):
        output = bundle.network.step(tokens, ring)
        return output._replace(encoded=output.encoded * torch.nan)

    assert check_step(bundle, broken, 8).largest == float("inf")


def test_what_cannot_be_exported_says_why(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    made = Bundle.load(trained / "bundle")
    settings = replace(made.settings, positions="time-sinusoidal", position_options={})
    additive = replace(made, settings=settings, network=SequenceTransformer(made.layout, settings))
    with pytest.raises(ConfigError, match="not possible with the scheme 'time-sinusoidal': it adds positions"):
        export_step(additive, "onnx", tmp_path / "m.onnx")
    with pytest.raises(ServingError, match=r"the file of onnx ends in \.onnx"):
        export_step(made, "onnx", tmp_path / "m.pt2")
    with pytest.raises(ServingError, match="export to 'tflite' is not known; there are onnx, aotinductor"):
        export_step(made, "tflite", tmp_path / "m.onnx")
    arguments = ["export", str(trained / "bundle"), "--to", "onnx", "-o", str(tmp_path / "m.onnx"), "--block", "0"]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "robopos export: block is 0, must be a number of tokens >= 1\n"


def test_an_exporter_that_fails_is_named(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> None:
        raise NotImplementedError("operator aten::mystery\nis unknown")

    monkeypatch.setitem(EXPORTERS, "onnx", fails)
    with pytest.raises(ServingError, match="onnx cannot take this network: NotImplementedError: operator aten::mys"):
        export_step(Bundle.load(trained / "bundle"), "onnx", tmp_path / "m.onnx")


def test_a_missing_runtime_is_named(onnx_file: Path, trained: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ServingError, match=r"onnxruntime is not installed: pip install 'robopos\[export\]'"):
        Engine.load(trained / "bundle", device="cpu", step=onnx_file)


def test_a_file_that_cannot_serve_the_bundle_is_refused(onnx_file: Path, trained: Path, tmp_path: Path):
    bundle = Bundle.load(trained / "bundle")
    with pytest.raises(ServingError, match="no exported step there"):
        Engine(bundle, device="cpu", step=tmp_path / "nowhere.onnx")
    with pytest.raises(ServingError, match="step 'compile' is of mode 'stream'"):
        Engine(bundle, device="cpu", mode="window", step="compile")
    with pytest.raises(ServingError, match="needs a CUDA device"):
        Engine(bundle, device="cpu", step="graph")
    garbage = tmp_path / "garbage.onnx"
    garbage.write_bytes(b"\x08\x01" * 50)
    with pytest.raises(ServingError, match=r"garbage\.onnx: (cannot be loaded|not a step)"):
        Engine(bundle, device="cpu", step=garbage)
    garbage.rename(tmp_path / "garbage.bin")
    with pytest.raises(ServingError, match=r"ends in \.onnx or \.pt2"):
        Engine(bundle, device="cpu", step=tmp_path / "garbage.bin")
    with torch.no_grad():
        bundle.network.norm.weight.add_(1e-3)
    with pytest.raises(ServingError, match="exported from another bundle"):
        Engine(bundle, device="cpu", step=onnx_file)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme", ["none", "index-rotary", "index-alibi", "time-alibi", "index-relative", "time-relative"]
)
def test_every_scheme_that_streams_goes_to_onnx(onnx_file: Path, trained: Path, tmp_path: Path, scheme: str):
    made = Bundle.load(trained / "bundle")
    settings = replace(made.settings, positions=scheme, position_options={}, loss="gaussian")
    settings = fill_position_options(settings, 0.02)
    torch.manual_seed(1)
    network = SequenceTransformer(made.layout, settings)
    for parameter in network.parameters():
        parameter.data.add_(torch.randn_like(parameter), alpha=0.05)
    parity = export_step(replace(made, settings=settings, network=network), "onnx", tmp_path / "m.onnx")
    assert parity.largest < 1e-5


@pytest.mark.slow
@pytest.mark.compiler
@pytest.mark.parametrize("kind", ["aotinductor", "compile"])
def test_compiled_steps_give_the_same(trained: Path, arm_log: Path, tmp_path: Path, kind: str):
    step = kind
    if kind == "aotinductor":
        step = tmp_path / "model.pt2"
        assert main(["export", str(trained / "bundle"), "--to", "aotinductor", "-o", str(step)]) == 0
    engine = Engine.load(trained / "bundle", device="cpu", step=step)
    plain = Engine.load(trained / "bundle", device="cpu")
    mine, theirs = (predictions(e, arm_log, 120, every=5) for e in (engine, plain))
    np.testing.assert_allclose(mine, theirs, atol=1e-5)
