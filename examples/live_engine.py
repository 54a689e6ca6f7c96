"""The live engine on a stream: messages go in as they come, predictions come out after each joint state.

The "robot" is the generator `sensors`, which waits as long as the messages were apart: put your driver or your
subscription in its place. Printed are the predictions of the elbow beside what it did 0.1 s later, and what the engine
counted. The bundle is that of train_from_python.py, made first where it is missing. (5 s of stream.)
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import train_from_python
from sample_log import messages

from robopos.serving import Engine

TOPICS = {"/joint_states": "joints", "/imu": "imu", "/command": "command"}


def sensors(seconds: float) -> Iterator[tuple[str, int, np.ndarray]]:
    """(stream, time in ns, values in the order of the bundle's fields), paced as they would come."""
    first_ns, started_s = None, time.monotonic()
    for message in messages(seconds, seed=7):
        first_ns = message.log_time_ns if first_ns is None else first_ns
        time.sleep(max(0.0, (message.log_time_ns - first_ns) / 1e9 - (time.monotonic() - started_s)))
        content, stream = message.message, TOPICS[message.topic]
        if stream == "joints":
            yield stream, content["header"]["stamp"], np.concatenate([content["position"], content["velocity"]])
        elif stream == "imu":
            yield stream, content["header"]["stamp"], np.array([content["angular_velocity"]["z"]])
        else:
            yield stream, message.log_time_ns, content["data"]  # without a stamp: when it came


def main() -> None:
    bundle = train_from_python.OUT / "bundle"
    if not bundle.is_dir():
        train_from_python.main()
    engine = Engine.load(bundle)
    times_ns, angles, due_ns, expected, took_s = [], [], [], [], []
    for stream, time_ns, values in sensors(seconds=5.0):
        engine.push(stream, time_ns, values)  # cheap: decides what becomes of the message, and queues it
        if stream != "joints":
            continue
        times_ns.append(time_ns)
        angles.append(values[1])
        started_s = time.perf_counter()
        prediction = engine.predict()  # takes all that waits, in one step against the cached keys
        took_s.append(time.perf_counter() - started_s)
        if engine.settled:  # as much history as evaluation asks for
            due_ns.append(prediction.time_ns + round(prediction.horizons_s[0] * 1e9))
            expected.append(prediction.values[0, prediction.names.index("joints.position[elbow]")])
            if len(expected) % 40 == 0:
                print(f"elbow {angles[-1]:+.3f} rad, in {prediction.horizons_s[0]:g} s expected at {expected[-1]:+.3f}")

    known = np.array(due_ns) <= times_ns[-1]
    happened = np.interp(np.array(due_ns) - times_ns[0], np.array(times_ns) - times_ns[0], angles)
    error = np.sqrt(np.mean((np.array(expected) - happened)[known] ** 2))
    print(
        f"{len(expected)} predictions in mode {engine.mode}, {1e3 * np.median(took_s):.2f} ms each (median); "
        f"RMSE {error:.4f} rad"
    )
    print(", ".join(f"{name}: {stats.admitted} messages" for name, stats in engine.stats.streams.items()))


if __name__ == "__main__":
    main()
