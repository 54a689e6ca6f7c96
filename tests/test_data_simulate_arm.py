"""data/simulate_arm.py: an arm that obeys, a log with true times, and a policy that learns from it."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import yaml

from robopos.cli import main
from robopos.logs import StreamSpec, read_log
from robopos.model import Bundle

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "data"))

import simulate_arm  # noqa: E402

mujoco = pytest.importorskip("mujoco", reason="the arm is simulated with MuJoCo: pip install 'robopos[sim]'")

STREAMS = {
    "joints": StreamSpec("joint_states", ["position"]),
    "command": StreamSpec("joint_commands", ["position"]),
    "goal": StreamSpec("goal", ["point"]),
}


def make(path: Path, *options: str) -> Path:
    assert simulate_arm.main(["--out", str(path), "--episodes", "3", "--episode-s", "8", *options]) == 0
    return path


@pytest.fixture(scope="module")
def log_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("arm") / "arm.mcap")


def tool_m(joints: np.ndarray) -> np.ndarray:
    model = mujoco.MjModel.from_xml_string(simulate_arm.MODEL)
    data = mujoco.MjData(model)
    data.qpos[:] = joints
    mujoco.mj_forward(model, data)
    return data.site("tool").xpos


def test_the_pose_for_a_goal_puts_the_tool_there():
    generator = np.random.default_rng(0)
    for _ in range(20):
        goal = simulate_arm.random_goal(generator)
        np.testing.assert_allclose(tool_m(simulate_arm.joints_for(goal)), goal, atol=1e-9)
    with pytest.raises(simulate_arm.SimulationError, match="no pose of the arm"):
        simulate_arm.joints_for(np.array([2.0, 0.0, 0.2]))


def test_the_arm_reaches_its_goals():
    events = list(simulate_arm.simulate(20.0, 2, np.random.default_rng(1)))
    goals = [(e.time_ms, tuple(e.content["point"].values())) for e in events if e.topic == "goal"]
    states = [(e.time_ms, e.content["position"]) for e in events if e.topic == "joint_states"]
    # Just before a goal gives way to the next, the tool is at it but for what gravity bends.
    left = [(later_ms, goal) for (_, goal), (later_ms, new) in pairwise(goals) if goal != new]
    assert len(left) >= 4
    for time_ms, goal in left:
        before = [position for at_ms, position in states if at_ms < time_ms - simulate_arm.GOAL_MS]
        assert np.linalg.norm(tool_m(np.array(before[-1])) - goal) < 0.03


def test_two_rates_jitter_losses_and_pauses(log_path: Path):
    log = read_log(log_path, STREAMS)
    steps_ms = {name: np.diff(log[name].time_ns) / 1e6 for name in STREAMS}
    assert np.median(steps_ms["joints"]) == 10
    assert np.median(steps_ms["command"]) == 50
    for name, period_ms in (("joints", 10), ("command", 50)):
        assert (steps_ms[name] > 9e3).sum() == 2  # between three episodes
        inside = steps_ms[name][steps_ms[name] < 9e3]
        assert 0.5 < inside[inside < 1.5 * period_ms].std() < 3  # jitter
        assert 0.01 < 1 - len(inside) / (inside.sum() / period_ms) < 0.3  # losses
        delay_ns = log[name].arrival_ns - log[name].time_ns
        assert delay_ns.min() >= 300_000 and delay_ns.max() > 1_000_000


def test_nothing_is_lost_or_shaken_if_nothing_shall_be(tmp_path: Path):
    log = read_log(make(tmp_path / "even.mcap", "--jitter-ms", "0", "--drop-share", "0"), STREAMS)
    assert [len(log[name].time_ns) for name in STREAMS] == [3 * 800, 3 * 160, 3 * 40]
    assert set(np.diff(log["joints"].time_ns).tolist()) == {10_000_000, 10_010_000_000}


def test_the_seed_makes_the_log(log_path: Path, tmp_path: Path):
    content = {name: (s.time_ns.tolist(), s.values.tolist()) for name, s in read_log(log_path, STREAMS).items()}
    again = read_log(make(tmp_path / "again.mcap"), STREAMS)
    other = read_log(make(tmp_path / "other.mcap", "--seed", "1"), STREAMS)
    for name, (time_ns, values) in content.items():
        assert again[name].time_ns.tolist() == time_ns
        assert again[name].values.tolist() == values
        assert other[name].values.tolist() != values


def test_a_wrong_option_and_a_wrong_folder_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        simulate_arm.main(["--drop-share", "1.5"])
    assert stopped.value.code == 2
    assert "--drop-share" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert simulate_arm.main(["--out", str(tmp_path / "file" / "arm.mcap")]) == 1
    assert "data/simulate_arm.py:" in capsys.readouterr().err


@pytest.mark.slow
def test_a_policy_learns_an_action_chunk(tmp_path: Path):
    log_path = make(tmp_path / "arm.mcap", "--episodes", "12", "--episode-s", "15")
    config = ROOT / "configs" / "arm_actions.yaml"
    out = tmp_path / "run"
    command = ["train", "--config", str(config), "--out", str(out), "--data.logs", f"[{log_path}]"]
    command += ["--trainer.max_steps", "200", "--trainer.accelerator", "cpu", "--data.batch_size", "8"]
    command += ["--model.optimizer.warmup_steps", "20"]
    assert main(command) == 0
    bundle = Bundle.load(out / "bundle")
    assert list(bundle.layout.horizons_s) == yaml.safe_load(config.read_text())["data"]["sequence"]["horizons_s"]
    assert bundle.layout.target_names == tuple(f"command.position[{joint}]" for joint in simulate_arm.JOINTS)
    assert not any(name.startswith("command") for name in bundle.layout.feature_names)
    # Knowing only what commands are like, one would be off by their spread.
    log = read_log(log_path, STREAMS)["command"]
    spread = dict(zip(log.names, log.values.std(axis=0), strict=True))
    for row in bundle.metrics:
        if row["target"] == "command.position[base]":
            assert row["count"] > 0
            assert row["rmse"] < 0.5 * spread["position[base]"], row
