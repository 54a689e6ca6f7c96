"""What leaves the node: for each stream that is predicted, a trajectory, and what else is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rclpy.qos import QoSProfile
from std_msgs.msg import Float64MultiArray
from trajectory_msgs.msg import JointTrajectory

from robopos.errors import ServingError
from robopos.sequences import InputStream
from robopos.serving import Engine, Prediction, TrajectoryWriter, fits_stamp
from robopos.stamps import NS_PER_S
from robopos_ros.covariance import FLOAT32_MOST
from robopos_ros.messages import labelled_array
from robopos_ros.own_type import OwnType
from robopos_ros.parameters import Settings
from robopos_ros.types import message_class

if TYPE_CHECKING:
    from rclpy.lifecycle import LifecycleNode


class Published(NamedTuple):
    """What became of one prediction's streams."""

    trajectories: Mapping[str, bytes]  # those published, serialized, by stream
    not_finite: Sequence[str] = ()  # values for whose sake their stream was left out
    beyond_limits: Sequence[str] = ()  # values outside the training range and its margin, at some horizon
    stamp_overflow: bool = False  # a message was left out because no stamp holds its time


@dataclass
class _Stream:
    """The publishers of one stream; `row` is the horizon of the stream's own type."""

    columns: NDArray[np.intp]
    names: list[str]
    writer: TrajectoryWriter
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    mean: Any
    std: Any = None
    at_horizon: Any = None
    own_type: OwnType | None = None
    row: int = 0


def topic_of(stream: str) -> str:
    """Where a stream's predictions go, below the node's own name."""
    return f"~/prediction/{stream}"


def horizon_row(horizons_s: Sequence[float], asked_s: float) -> int:
    """The number of a horizon of the bundle.

    Raises:
        ServingError: the bundle does not predict there.
    """
    for row, horizon_s in enumerate(horizons_s):
        if abs(horizon_s - asked_s) < 1e-6:
            return row
    known = ", ".join(f"{horizon_s:g}" for horizon_s in horizons_s)
    raise ServingError(
        f"the parameter 'publish_horizon_s' is {asked_s:g}, but the bundle predicts at {known} s: choose one of them"
    )


def chosen_streams(engine: Engine, asked: Sequence[str]) -> list[str]:
    """The streams to publish, in the bundle's order; `asked` are their topics, none means all.

    Raises:
        ServingError: a topic that the bundle does not predict.
    """
    topics = {stream.topic.strip("/"): stream.name for stream in engine.inputs if stream.name in engine.targets}
    wanted = {topic.strip("/") for topic in asked} - {""}
    if unknown := wanted - topics.keys():
        raise ServingError(
            f"the parameter 'target_topics' names {', '.join(sorted(unknown))}; "
            f"the bundle predicts {', '.join(sorted(topics))}"
        )
    return [name for topic, name in topics.items() if not wanted or topic in wanted]


class Outputs:
    """The publishers of one configured bundle; silent while the node is not active.

    Attributes:
        described: for each stream, what its topic for `publish_horizon_s` carries, or why not its own type.

    Raises:
        ServingError: parameters ask for what the bundle does not predict.
    """

    def __init__(self, node: LifecycleNode, engine: Engine, settings: Settings) -> None:
        self._node = node
        self._streams: dict[str, _Stream] = {}
        self.described: dict[str, str] = {}
        chosen = chosen_streams(engine, settings.target_topics)
        at_s = settings.publish_horizon_s
        row = horizon_row(engine.bundle.layout.horizons_s, at_s) if at_s else None
        try:
            for stream in engine.inputs:
                if stream.name in chosen:
                    self._add(stream, engine, row)
        except Exception:
            self.destroy()
            raise

    def _add(self, stream: InputStream, engine: Engine, row: int | None) -> None:
        name, layout, limits = stream.name, engine.bundle.layout, engine.bundle.limits()
        columns = np.array(engine.targets[name])
        targets = [layout.target_names[column] for column in columns]
        low, high = np.array([limits[target] for target in targets]).T
        names = [target.removeprefix(f"{name}.") for target in targets]
        writer = TrajectoryWriter.of(layout, name)
        made = _Stream(columns, names, writer, low, high, self._publisher(JointTrajectory, topic_of(name)))
        self._streams[name] = made
        if engine.bundle.settings.loss == "gaussian":
            made.std = self._publisher(JointTrajectory, f"{topic_of(name)}/std")
        if row is not None:
            self._add_horizon(made, stream, row)

    def _add_horizon(self, made: _Stream, stream: InputStream, row: int) -> None:
        kind, name = message_class(stream.type), stream.name
        try:
            made.own_type = OwnType(stream.type, kind, made.names, next(iter(stream.frame_ids), ""))
            self.described[name] = stream.type
        except ServingError as error:
            kind = Float64MultiArray
            self.described[name] = f"std_msgs/msg/Float64MultiArray, because {error}"
        made.row = row
        made.at_horizon = self._publisher(kind, f"{topic_of(name)}/at_horizon")

    def _publisher(self, kind: type, topic: str) -> Any:
        return self._node.create_lifecycle_publisher(kind, topic, QoSProfile(depth=10))  # reliable, keep last

    def publish(self, prediction: Prediction, limits: str) -> Published:
        """Publish every stream whose values are finite and, when `limits` is "stop", within the bundle's limits."""
        if not fits_stamp(prediction.time_ns):  # a replay leaves it out too
            return Published({}, stamp_overflow=True)
        trajectories: dict[str, bytes] = {}
        not_finite: list[str] = []
        beyond: list[str] = []
        overflow = False
        for name, stream in self._streams.items():
            values = prediction.values[:, stream.columns]
            std = None if prediction.std is None else prediction.std[:, stream.columns]
            finite = np.isfinite(values).all(axis=0)
            if std is not None:
                finite &= np.isfinite(std).all(axis=0)
            if not finite.all():
                not_finite += _named(name, stream, ~finite)
                continue
            if limits != "off":
                outside = ((values < stream.low) | (values > stream.high)).any(axis=0)
                if outside.any():
                    beyond += _named(name, stream, outside)
                    if limits == "stop":
                        continue
            trajectories[name] = stream.writer.write(prediction.time_ns, values)
            stream.mean.publish(trajectories[name])
            if std is not None and stream.std is not None:
                stream.std.publish(stream.writer.write(prediction.time_ns, std))
            if stream.at_horizon is not None:
                row = None if std is None else std[stream.row]
                overflow |= not _publish_at_horizon(stream, prediction, values[stream.row], row)
        return Published(trajectories, not_finite, beyond, overflow)

    def listeners(self) -> dict[str, int]:
        """For each stream, how many hear its trajectory."""
        return {name: stream.mean.get_subscription_count() for name, stream in self._streams.items()}

    def destroy(self) -> None:
        """Take the publishers down."""
        for stream in self._streams.values():
            for publisher in (stream.mean, stream.std, stream.at_horizon):
                if publisher is not None:
                    self._node.destroy_lifecycle_publisher(publisher)
        self._streams.clear()


def _publish_at_horizon(
    stream: _Stream, prediction: Prediction, values: NDArray[np.float64], std: NDArray[np.float64] | None
) -> bool:
    """Publish one horizon (T,); whether a stamp holds the time that it is about."""
    horizon_s = float(prediction.horizons_s[stream.row])
    if stream.own_type is None:
        stream.at_horizon.publish(labelled_array(horizon_s, stream.names, values))
        return True
    about_ns = prediction.time_ns + round(horizon_s * NS_PER_S)
    if not fits_stamp(about_ns):
        return False
    if np.abs(values).max() <= FLOAT32_MOST:
        stds = None if std is None else std.tolist()
        stream.at_horizon.publish(stream.own_type.make(about_ns, values.tolist(), stds))
    return True


def _named(name: str, stream: _Stream, which: NDArray[np.bool_]) -> list[str]:
    return [f"{name}.{field}" for field, told in zip(stream.names, which, strict=True) if told]
