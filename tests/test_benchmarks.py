"""The benchmarks run through, with tiny sizes, and say what they shall say."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import gpu
import hopper
import measuring
import starts
import training
import workload

from robopos.model import ModelSettings, SequenceTransformer


def figures(path: Path) -> dict[str, dict]:
    rows = json.loads(path.read_text())
    for row in rows:
        assert set(row) == {"name", "value", "unit", "target", "reached"}
        assert math.isfinite(row["value"]), row
        assert (row["target"] is None) == (row["reached"] is None), row
        assert row["target"] is None or re.fullmatch(r"[<>]= \S+", row["target"]), row
    assert len({row["name"] for row in rows}) == len(rows)
    return {row["name"]: row for row in rows}


def test_targets_from_above_and_from_below(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    report = measuring.Report()
    report.add("a", 1.0, "s", at_most=1.0)
    report.add("b", 1.0, "x", at_least=1.5)
    report.add("c", 2.0)
    report.write_json(tmp_path / "r.json")
    report.write_markdown(tmp_path / "r.md", "Title")
    found = figures(tmp_path / "r.json")
    assert [row["reached"] for row in found.values()] == [True, False, None]
    assert [row["target"] for row in found.values()] == ["<= 1", ">= 1.5", None]
    assert (tmp_path / "r.md").read_text().splitlines()[-3:] == [
        "| a | 1 | s | <= 1 | yes |",
        "| b | 1 | x | >= 1.5 | no |",
        "| c | 2 |  |  |  |",
    ]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("<= 1 reached") and printed[1].endswith(">= 1.5 NOT reached")


def test_cases_take_turns_and_warming_up_does_not_count():
    order: list[str] = []
    cases = {name: (lambda name=name: order.append(name)) for name in "ab"}
    found = measuring.in_turns(cases, 3, warm_up=1, in_a_row={"b": 2})
    assert order == list("abbabbabbabb")
    assert {name: len(times) for name, times in found.items()} == {"a": 3, "b": 6}
    assert measuring.medians({"a": [3.0, 1.0, 2.0]}) == {"a": 2.0}


def test_the_rival_sees_the_same_band_and_has_as_many_weights():
    work = workload.make_work(2000)
    settings = ModelSettings(positions="index-sinusoidal", context=8, window=32)
    plain = workload.make_network(work, settings, training.PlainTransformer).eval()
    batch = workload.make_sampler(work, settings, 2).sample(0)
    with torch.no_grad():
        before = plain.encode(batch.tokens)
        values = batch.tokens.values.clone()
        values[:, 10] += 1.0
        after = plain.encode(batch.tokens._replace(values=values))
    changed = (before != after).any(-1).any(0)
    # Two layers of a band of 8 reach 14 tokens on.
    assert changed.nonzero().flatten().tolist() == list(range(10, 10 + 2 * 7 + 1))
    ours = workload.make_network(work, settings, SequenceTransformer)
    counts = [sum(p.numel() for p in network.parameters() if p.ndim == 2) for network in (ours, plain)]
    assert counts[0] == pytest.approx(counts[1], rel=0.05)


def test_flops_are_those_that_torch_counts():
    work = workload.make_work(2000)
    # Without a band every pair of the square is computed; the formula counts the half that is seen.
    settings = ModelSettings(positions="none", context=31, window=32)
    network = workload.make_network(work, settings, SequenceTransformer)
    batch = workload.make_sampler(work, settings, 2).sample(0)
    # Torch counts attention where it is made of plain products.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        network(batch.tokens)[0].sum().backward()
    square = 2 * 12 * len(network.blocks) * network.embed.out_features * 32 * 32
    seen = 2 * 12 * len(network.blocks) * network.embed.out_features * sum(min(n + 1, 31) for n in range(32))
    expected = workload.step_flops(network, 2) - seen + square
    # Inputs need no gradient, which the formula counts for every weight.
    assert counter.get_total_flops() == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
def test_the_gpu_script_runs_through_on_a_cpu(tmp_path: Path):
    # In a process of its own, in which what a bare GPU machine lacks cannot be imported.
    lines = [
        "import sys",
        "sys.modules |= dict.fromkeys(('mcap', 'lightning', 'pandas'))",
        f"sys.path.insert(0, {str(Path(gpu.__file__).parent)!r})",
        "import gpu",
        "sys.exit(gpu.main(sys.argv[1:]))",
    ]
    options = ["--quick", "--json", str(tmp_path / "r.json"), "--markdown", str(tmp_path / "r.md")]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), *options], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found = figures(tmp_path / "r.json")
    for part in (
        "throughput",
        "model FLOP utilisation",
        "sampling",
        "time-rotary",
        "time-relative",
        "dense mask",
        "p99",
    ):
        assert any(part in name for name in found), part
    assert len((tmp_path / "r.md").read_text().splitlines()) == len(found) + 4


@pytest.mark.slow
def test_a_part_of_the_gpu_script_that_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def attention(self: gpu.Bench) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu.Bench, "attention", attention)
    assert gpu.main(["--quick", "--json", str(tmp_path / "r.json")]) == 1
    assert "attention failed: RuntimeError: out of memory" in capsys.readouterr().err
    assert any("streaming" in name for name in figures(tmp_path / "r.json"))


@pytest.mark.slow
def test_the_training_benchmark_runs_through(tmp_path: Path):
    threads = torch.get_num_threads()
    training.main(["--quick", "--json", str(tmp_path / "r.json"), "--threads", str(threads)])
    found = figures(tmp_path / "r.json")
    ours, plain = found["tiny, eager: ours"], found["tiny, eager: nn.TransformerEncoder"]
    ratio = found["tiny, eager: ours / nn.TransformerEncoder, tokens per second"]
    assert ratio["value"] == pytest.approx(ours["value"] / plain["value"])
    assert ratio["reached"] == (ratio["value"] >= 0.95)


@pytest.mark.slow
def test_the_starts_are_timed(tmp_path: Path):
    assert starts.main(["--quick", "--json", str(tmp_path / "r.json")]) == 0
    found = figures(tmp_path / "r.json")
    targets = {name: row["target"] for name, row in found.items() if row["target"] is not None}
    assert targets == {"import robopos, beyond torch": "<= 0.3", "robopos --help": "<= 0.5"}
    assert found["an interpreter that imports torch"]["value"] > found["an interpreter that does nothing"]["value"] > 0
    assert found["import robopos.serving, beyond torch"]["value"] > found["import robopos, beyond torch"]["value"]


needs_hopper = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("mujoco", "dm_control"))),
    reason="the hopper needs MuJoCo and dm_control's model",
)


@needs_hopper
@pytest.mark.slow
@pytest.mark.parametrize("protocol", list(hopper.PROTOCOLS))
def test_the_hopper_runs_through(protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    threads = torch.get_num_threads()
    options = ["--quick", "--protocol", protocol, "--json", str(tmp_path / "r.json"), "--threads", str(threads)]
    assert hopper.main(options) == 0
    assert "Where this differs from the published runs" in capsys.readouterr().out
    found = figures(tmp_path / "r.json")
    assert len(found) == 4 * 4
    assert found[f"hopper ({protocol}), 10 % observed, MSE x 100: ours"]["target"] == "<= 1.441"


@needs_hopper
def test_the_hopper_sees_only_what_is_observed(tmp_path: Path):
    protocol = hopper.PROTOCOLS["paper"]
    states = hopper.simulate(10, protocol.points, seed=1)
    assert (hopper.simulate(10, protocol.points, seed=1) == states).all()
    task = hopper.Task(states, hopper.through_a_log(states, tmp_path), protocol, torch.device("cpu"))
    places = task.observe(10, 20, torch.Generator().manual_seed(0))
    assert places.shape == (10, 10) and int(places.max()) < 50 and bool((places.diff(dim=1) > 0).all())
    tokens = task.tokens(torch.arange(10), places)
    # The observed states themselves, normalized by the training trajectories, at their own times.
    scaled = (states - states[:8].mean((0, 1))) / states[:8].std((0, 1))
    wanted = np_take(scaled, places)
    torch.testing.assert_close(tokens.values, torch.from_numpy(wanted).float(), rtol=1e-4, atol=1e-5)
    time_ns = tokens.positions.time_ns
    assert time_ns is not None
    assert torch.equal(time_ns - time_ns[:, :1], (places - places[:, :1]) * hopper.STEP_NS)
    # A network that changes nothing predicts the last observed point.
    network = hopper.make_network(task.layout, protocol, "tiny").eval()
    torch.nn.init.zeros_(network.head.out.weight)
    torch.nn.init.zeros_(network.head.out.bias)
    ours, held = task.test(network, 20)
    assert ours == pytest.approx(held, rel=1e-4) and held > 0


def np_take(states, places):
    return states[torch.arange(len(places))[:, None].numpy(), places.numpy()]
