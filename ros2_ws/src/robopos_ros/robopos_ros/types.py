"""Message classes by the names that bundles and logs give them."""

from __future__ import annotations

import importlib
from typing import Any

from robopos.errors import ServingError


def message_class(name: str) -> Any:
    """The class of a type name such as "sensor_msgs/msg/Imu".

    Raises:
        ServingError: the package is not installed, or has no such message.
    """
    package, _, rest = name.partition("/")
    short = rest.rpartition("/")[2]
    try:
        return getattr(importlib.import_module(f"{package}.msg"), short)
    except ImportError as error:
        raise ServingError(f"{name}: the ROS 2 package {package} is not installed ({error})") from None
    except AttributeError:
        raise ServingError(f"{name}: the ROS 2 package {package} has no message {short}") from None
