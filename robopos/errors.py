"""One tree of errors: what was wrong, where, and what to do, in one line."""


class RoboposError(Exception):
    """Base of every error that robopos raises on purpose."""


class PositionError(RoboposError):
    """A position scheme was asked for something it cannot do."""


class LogError(RoboposError):
    """A log, a topic, a schema or a field is not what was asked for."""


class ConfigError(RoboposError):
    """A setting has a wrong value or contradicts another."""


class UsageError(ConfigError):
    """A command line that its command does not take."""


class SequenceError(RoboposError):
    """Streams cannot be made into tokens, windows or targets."""


class BundleError(RoboposError):
    """A bundle is incomplete, broken, or of another format."""


class ServingError(RoboposError):
    """The live engine was given something it must refuse."""
