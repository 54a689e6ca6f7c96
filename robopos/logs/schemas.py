"""Schema texts of the standard ROS 2 types, for writing logs and for logs that carry none.

The definitions stand in `standard_types.msg`: field and constant lines alone, one block a type.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from robopos.errors import LogError
from robopos.logs.schema import NUMBERS, TEXTS, short_name

SEPARATOR = "=" * 80


@lru_cache(maxsize=1)
def _definitions() -> dict[str, list[str]]:
    blocks: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in files("robopos.logs").joinpath("standard_types.msg").read_text("utf-8").splitlines():
        if line.startswith("MSG: "):
            lines = blocks.setdefault(line[5:], [])
        else:
            lines.append(line)
    return blocks


def standard_types() -> tuple[str, ...]:
    """The types that `schema_text` knows, as "pkg/msg/Type"."""
    return tuple(name.replace("/", "/msg/") for name in _definitions())


@lru_cache(maxsize=256)
def schema_text(type: str) -> str:
    """The full ros2msg text of a standard type: its definition, then every nested one under `MSG: pkg/Type`.

    Args:
        type: "sensor_msgs/msg/Imu" or "sensor_msgs/Imu".

    Raises:
        LogError: the type is not among `standard_types()`.
    """
    root = short_name(type)
    order: list[str] = []

    def visit(name: str) -> None:
        if name not in _definitions():
            raise LogError(
                f"no standard schema for type {type!r}: give the schema text, or a type of "
                "std_msgs, geometry_msgs, sensor_msgs, nav_msgs, trajectory_msgs, diagnostic_msgs"
            )
        if name in order:
            return
        order.append(name)
        for line in _definitions()[name]:
            kind = line.split(" ", 1)[0].split("[", 1)[0].split("<", 1)[0]
            if kind not in NUMBERS and kind not in TEXTS:
                visit(kind if "/" in kind else f"{name.split('/')[0]}/{kind}")

    visit(root)
    parts = ["\n".join(_definitions()[root]) + "\n"]
    parts += [f"{SEPARATOR}\nMSG: {name}\n" + "\n".join(_definitions()[name]) + "\n" for name in order[1:]]
    return "".join(parts)
