"""How a command ends: its exit code, and one line on standard error when it was not done."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable

from robopos.cli.printable import printable
from robopos.errors import RoboposError, UsageError

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
EXIT_CODES = "exit codes: 0 done, 1 an error that is named, 2 wrong usage, 130 interrupted (Ctrl-C)"


def exit_code(name: str, work: Callable[[], object], *, debug: bool = False) -> int:
    """Do the work; what stops it is one line that starts with ``name``, with ``debug`` after its traceback."""
    try:
        work()
    except BrokenPipeError:
        # The reader went away (`| head`): nothing left to say, not even at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except KeyboardInterrupt as interrupt:
        # Its text says how to go on, where work can.
        print(": ".join([name, "interrupted", *map(str, interrupt.args)]), file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        # One line, whatever names a log or a bundle holds.
        print(printable(f"{name}: {' '.join(_in_words(error).splitlines())}"), file=sys.stderr)
        return WRONG_USAGE if isinstance(error, UsageError) else FAILED
    return DONE


def _in_words(error: Exception) -> str:
    if isinstance(error, RoboposError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return f"unexpected {type(error).__name__}: {' '.join(str(error).split())} (run again with --debug)"
