"""robopos: sequence models on timestamped robot sensor streams."""

from robopos._version import __version__
from robopos.errors import RoboposError

__all__ = ["RoboposError", "__version__"]
