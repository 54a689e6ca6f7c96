"""A small log to try things on: two joints of an arm that follow commands, with jitter and lost messages.

    python examples/sample_log.py run.mcap --seconds 60 --seed 0

Three topics: /joint_states (40 Hz), /imu on the forearm (25 Hz) and /command, the angles asked for (10 Hz), which has
no header and so no stamp. Each message comes up to a fifth of its period late, 5 % are lost, and a message is recorded
2 to 6 ms after its stamp.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from robopos.logs import LogMessage, write_log

START_NS = 1_700_000_000_000_000_000
STIFFNESS, DAMPING = 40.0, 10.0  # 1/s², 1/s: the joints overshoot a little
RATES_HZ = {"joints": 40.0, "imu": 25.0, "command": 10.0}


def motion(
    seconds: float, generator: np.random.Generator
) -> Iterator[tuple[float, np.ndarray, np.ndarray, np.ndarray]]:
    """Every 5 ms: the time (s), and of both joints the angle asked for (rad), the angle (rad) and the speed (rad/s)."""
    asked, angle, speed = np.zeros(2), np.zeros(2), np.zeros(2)
    until_s, step_s = 0.0, 0.005
    for tick in range(round(seconds / step_s)):
        if tick * step_s >= until_s:  # a new goal, now and then
            asked, until_s = generator.uniform(-1.2, 1.2, 2), until_s + generator.uniform(0.5, 1.5)
        speed = speed + step_s * (STIFFNESS * (asked - angle) - DAMPING * speed)
        angle = angle + step_s * speed
        yield tick * step_s, asked, angle, speed


def messages(seconds: float = 60.0, seed: int = 0) -> Iterator[LogMessage]:
    """The messages of the three topics, in the order of their log times."""
    generator = np.random.default_rng(seed)
    due_s = dict.fromkeys(RATES_HZ, 0.0)
    last_ns = 0
    for time_s, asked, angle, speed in motion(seconds, generator):
        for stream, rate_hz in RATES_HZ.items():
            if time_s < due_s[stream]:
                continue
            due_s[stream] = (round(time_s * rate_hz) + 1 + generator.uniform(0, 0.2)) / rate_hz
            if generator.random() < 0.05:
                continue
            stamp_ns = START_NS + round(time_s * 1e9)
            last_ns = log_ns = max(last_ns, stamp_ns + int(generator.integers(2_000_000, 6_000_000)))
            header = {"stamp": stamp_ns, "frame_id": "forearm"}
            if stream == "joints":
                content = {"header": header, "name": ["shoulder", "elbow"], "position": angle, "velocity": speed}
                yield LogMessage("/joint_states", "sensor_msgs/msg/JointState", log_ns, content)
            elif stream == "imu":
                turning = {"x": 0.0, "y": 0.0, "z": speed.sum() + 0.02 * generator.standard_normal()}
                yield LogMessage("/imu", "sensor_msgs/msg/Imu", log_ns, {"header": header, "angular_velocity": turning})
            else:
                yield LogMessage("/command", "std_msgs/msg/Float64MultiArray", log_ns, {"data": asked})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", default="run.mcap", help="the file to write (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the log (s, default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the motion, the jitter and the losses (default: 0)")
    args = parser.parse_args()
    path = write_log(Path(args.log), messages(args.seconds, args.seed))
    print(f"{path}: {args.seconds:g} s; look at it with `robopos inspect {path}`")


if __name__ == "__main__":
    main()
