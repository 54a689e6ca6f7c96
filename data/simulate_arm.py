"""Simulates a robot arm that reaches for goals, and writes what a recorder would have logged (see data/README.md).

    python data/simulate_arm.py [--out FILE] [--episodes N] [--episode-s S] [--seed N] [--jitter-ms N] [--drop-share P]

Four joints with position actuators under gravity (MuJoCo, the model is below). A scripted expert reads the goal and
moves the joint commands to it; what it commands is what a policy may learn. Topics, all with true stamps:

    joint_states    sensor_msgs/JointState       100 Hz  position (rad), velocity (rad/s), effort (N m), with noise
    joint_commands  sensor_msgs/JointState        20 Hz  position (rad) that the actuators hold until the next
    goal            geometry_msgs/PointStamped     5 Hz  where the tool shall go (m), in the frame of the base

Periods jitter, messages are lost one by one and in bursts, and each is received a little after its stamp. Episodes
follow one another with a pause between them. The same seed gives the same file, on one release of MuJoCo.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robopos.cli.ending import exit_code
from robopos.errors import RoboposError
from robopos.logs import LogMessage, write_log

JOINTS = ("base", "shoulder", "elbow", "wrist")
BASE_M, UPPER_M, FORE_M, HAND_M = 0.20, 0.30, 0.25, 0.12  # heights and lengths of the links
STEP_NS = 1_000_000  # of the physics; every stamp is a whole number of them
STATE_MS, COMMAND_MS, GOAL_MS = 10, 50, 200
START_NS = 1_700_000_000_000_000_000
PAUSE_S = 10.0  # between two episodes
SPEED_RAD_S, ACCELERATION_RAD_S2, GAIN_PER_S = 1.5, 6.0, 4.0  # of the expert
POSITION_NOISE_RAD, VELOCITY_NOISE_RAD_S = 5e-4, 5e-3
BURSTS_PER_S, BURST_MS = 0.05, (50, 200)  # the recorder hears nothing for so long

# Straight up at zero; every joint but the base's turns about y, so that the arm moves in one vertical plane.
MODEL = f"""
<mujoco model="arm">
  <compiler angle="radian"/>
  <option timestep="{STEP_NS / 1e9}" integrator="implicitfast"/>
  <default>
    <joint axis="0 1 0" damping="25" armature="0.1"/>
    <geom type="capsule" density="1200" contype="0" conaffinity="0"/>
    <position kp="500" forcerange="-80 80"/>
  </default>
  <worldbody>
    <body name="base">
      <joint name="base" axis="0 0 1"/>
      <geom fromto="0 0 0 0 0 {BASE_M}" size="0.05"/>
      <body name="upper" pos="0 0 {BASE_M}">
        <joint name="shoulder"/>
        <geom fromto="0 0 0 0 0 {UPPER_M}" size="0.035"/>
        <body name="fore" pos="0 0 {UPPER_M}">
          <joint name="elbow"/>
          <geom fromto="0 0 0 0 0 {FORE_M}" size="0.03"/>
          <body name="hand" pos="0 0 {FORE_M}">
            <joint name="wrist" damping="10"/>
            <geom fromto="0 0 0 0 0 {HAND_M}" size="0.025"/>
            <site name="tool" pos="0 0 {HAND_M}"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    {"".join(f'<position name="{name}" joint="{name}"/>' for name in JOINTS)}
  </actuator>
</mujoco>
"""


class SimulationError(RoboposError):
    """The arm cannot be simulated; the message says what is in the way."""


class Recorder(NamedTuple):
    """How the log differs from the truth."""

    jitter_ms: int = 3
    """A period is up to so much longer or shorter (ms)."""
    drop_share: float = 0.03
    """Messages that are lost one by one."""


class Event(NamedTuple):
    """One message, as it was sent: topic, time since the start of the episode (ms), content without header."""

    topic: str
    time_ms: int
    content: dict[str, Any]


def joints_for(goal: np.ndarray) -> np.ndarray:
    """Joint angles (4,) that put the tool at ``goal`` (3,) m, pointing down, elbow up: two links in a plane."""
    reach = math.hypot(goal[0], goal[1])
    height = goal[2] + HAND_M - BASE_M
    cosine = (reach**2 + height**2 - UPPER_M**2 - FORE_M**2) / (2 * UPPER_M * FORE_M)
    if not -1.0 <= cosine <= 1.0:
        raise SimulationError(f"no pose of the arm has its tool at {np.round(goal, 3).tolist()} m")
    elbow = math.acos(cosine)
    lean = math.atan2(FORE_M * math.sin(elbow), UPPER_M + FORE_M * math.cos(elbow))
    shoulder = math.atan2(reach, height) - lean
    return np.array([math.atan2(goal[1], goal[0]), shoulder, elbow, math.pi - shoulder - elbow])


def random_goal(generator: np.random.Generator) -> np.ndarray:
    """(3,) m, in front of the arm and within its reach."""
    reach, angle, height = generator.uniform((0.25, -1.2, 0.05), (0.45, 1.2, 0.35))
    return np.array([reach * math.cos(angle), reach * math.sin(angle), height])


class Expert:
    """Moves commands to the goal at limited speed and acceleration, waits there, and takes a new goal."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self.command = joints_for(random_goal(generator))
        self._speed = np.zeros(len(JOINTS))
        self._take_goal()

    def _take_goal(self) -> None:
        self.goal = random_goal(self._generator)
        self._target = joints_for(self.goal)
        self._wait_s = self._generator.uniform(0.3, 1.0)

    def step(self, elapsed_s: float) -> None:
        """The next command, ``elapsed_s`` after the last."""
        off = self._target - self.command
        wanted = np.clip(GAIN_PER_S * off, -SPEED_RAD_S, SPEED_RAD_S)
        most = ACCELERATION_RAD_S2 * elapsed_s
        self._speed += np.clip(wanted - self._speed, -most, most)
        self.command = self.command + self._speed * elapsed_s
        if np.abs(off).max() < 0.01:
            self._wait_s -= elapsed_s
            if self._wait_s < 0:
                self._take_goal()


def ticks(period_ms: int, jitter_ms: int, duration_ms: int, generator: np.random.Generator) -> set[int]:
    """Times (ms) at which something periodic happens: its clock is even, each tick is off by up to the jitter."""
    even = np.arange(jitter_ms, duration_ms - jitter_ms, period_ms)
    return set((even + generator.integers(-jitter_ms, jitter_ms, len(even), endpoint=True)).tolist())


def simulate(seconds: float, jitter_ms: int, generator: np.random.Generator) -> Iterator[Event]:
    """One episode, event by event in order of time.

    Raises:
        SimulationError: MuJoCo is missing.
    """
    try:
        import mujoco
    except ImportError as error:
        raise SimulationError(f"MuJoCo is needed ({error}): pip install 'robopos[sim]'") from None
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    expert = Expert(generator)
    data.qpos[:] = expert.command
    data.ctrl[:] = expert.command
    duration_ms = round(seconds * 1000)
    at = {
        name: ticks(period_ms, jitter_ms, duration_ms, generator)
        for name, period_ms in (("state", STATE_MS), ("command", COMMAND_MS), ("goal", GOAL_MS))
    }
    last_ms = 0
    for now_ms in range(duration_ms):
        if now_ms in at["goal"]:
            yield Event("goal", now_ms, {"point": dict(zip("xyz", expert.goal.tolist(), strict=True))})
        if now_ms in at["command"]:
            expert.step((now_ms - last_ms) / 1e3)
            last_ms = now_ms
            data.ctrl[:] = expert.command
            yield Event("joint_commands", now_ms, {"name": list(JOINTS), "position": expert.command.tolist()})
        if now_ms in at["state"]:
            yield Event("joint_states", now_ms, _measured(data, generator))
        mujoco.mj_step(model, data)


def _measured(data: Any, generator: np.random.Generator) -> dict[str, Any]:
    position = data.qpos + generator.normal(0.0, POSITION_NOISE_RAD, len(JOINTS))
    velocity = data.qvel + generator.normal(0.0, VELOCITY_NOISE_RAD_S, len(JOINTS))
    return {
        "name": list(JOINTS),
        "position": position.tolist(),
        "velocity": velocity.tolist(),
        "effort": data.actuator_force.tolist(),
    }


TYPES = {
    "joint_states": "sensor_msgs/msg/JointState",
    "joint_commands": "sensor_msgs/msg/JointState",
    "goal": "geometry_msgs/msg/PointStamped",
}


def episode(seconds: float, start_ns: int, recorder: Recorder, seed: Sequence[int]) -> list[LogMessage]:
    """What the recorder has of one episode, in the order of receipt."""
    messages, silent_until_ms = [], 0
    # What is lost does not change what happens.
    world, generator = (np.random.default_rng([*seed, part]) for part in range(2))
    for event in simulate(seconds, recorder.jitter_ms, world):
        delay_ns = 300_000 + round(generator.exponential(500_000))
        lost = generator.random() < recorder.drop_share
        if recorder.drop_share > 0 and generator.random() < BURSTS_PER_S * STATE_MS / 1e3:
            silent_until_ms = event.time_ms + int(generator.integers(*BURST_MS))
        if lost or event.time_ms < silent_until_ms:
            continue
        stamp_ns = start_ns + event.time_ms * STEP_NS
        content = {"header": {"stamp": stamp_ns, "frame_id": "base"}} | event.content
        messages.append(LogMessage(event.topic, TYPES[event.topic], stamp_ns + delay_ns, content))
    return sorted(messages, key=lambda message: message.log_time_ns)


def simulate_log(path: Path, episodes: int, episode_s: float, seed: int, recorder: Recorder) -> int:
    """Write the log of all episodes; returns the number of messages.

    Raises:
        SimulationError: MuJoCo is missing.
        LogError: the file cannot be written.
    """
    messages: list[LogMessage] = []
    for number in range(episodes):
        start_ns = START_NS + round(number * (episode_s + PAUSE_S) * 1e9)
        messages += episode(episode_s, start_ns, recorder, [seed, number])
    write_log(path, messages)
    return len(messages)


def _at_least(kind: type, least: float, most: float = math.inf) -> Any:
    def parse(text: str) -> Any:
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least:g} to {most:g}")
        return value

    parse.__name__ = kind.__name__
    return parse


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate and write; 0 when the log is there."""
    parser = argparse.ArgumentParser(prog="data/simulate_arm.py", description=__doc__.splitlines()[0])
    default = Path(__file__).resolve().parent / "cache" / "arm.mcap"
    parser.add_argument(
        *("-o", "--out"),
        type=Path,
        default=default,
        metavar="LOG",
        help="the log to write (default: data/cache/arm.mcap)",
    )
    parser.add_argument("--episodes", type=_at_least(int, 1), default=12, metavar="N", help="how many (default: 12)")
    parser.add_argument(
        "--episode-s", type=_at_least(float, 1), default=30.0, metavar="S", help="length of each (s; default: 30)"
    )
    parser.add_argument(
        "--seed", type=_at_least(int, 0), default=0, metavar="N", help="of goals, noise and losses (default: 0)"
    )
    parser.add_argument(
        "--jitter-ms",
        type=_at_least(int, 0, STATE_MS // 2 - 1),
        default=Recorder().jitter_ms,
        metavar="N",
        help=f"each tick is off by up to so much (ms; default: {Recorder().jitter_ms})",
    )
    parser.add_argument(
        "--drop-share",
        type=_at_least(float, 0, 0.9),
        default=Recorder().drop_share,
        metavar="P",
        help=f"messages lost one by one; 0 loses none, in bursts neither (default: {Recorder().drop_share})",
    )
    args = parser.parse_args(argv)

    def work() -> None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        count = simulate_log(
            args.out, args.episodes, args.episode_s, args.seed, Recorder(args.jitter_ms, args.drop_share)
        )
        print(f"[data] {args.out}: {args.episodes} episodes of {args.episode_s:g} s, {count:,} messages")

    return exit_code("data/simulate_arm.py", work)


if __name__ == "__main__":
    sys.exit(main())
