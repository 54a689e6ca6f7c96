"""Stamps of messages: nanoseconds, by one of three clocks."""

from __future__ import annotations

from typing import Literal, get_args

NS_PER_S = 1_000_000_000
LONGEST_S = 1e9  # no span of time is longer: 31 years; in nanoseconds it is far inside int64
Clock = Literal["header", "log", "publish"]
"""The sensor's own time, the time of arrival at the recorder, the time at which the publisher sent."""
CLOCKS: tuple[Clock, ...] = get_args(Clock)
