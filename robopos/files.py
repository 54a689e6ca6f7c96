"""Files and folders that are there whole or not at all: written beside, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Write the file under the name given; it takes the place of ``path`` when the block ends without an error.

    Until then an older file stays, and an interrupted block leaves nothing. What is there and is no plain file (a
    device such as /dev/null, a pipe, a link) is written directly: renaming would take its place.

    Raises:
        OSError: the file cannot be written; it names ``path``.
    """
    target = Path(path)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        yield target
        return
    beside = target.with_name(f".{os.getpid()}.{target.name}")  # the ending stays: writers go by it
    try:
        yield beside
        os.replace(beside, target)
    except OSError as error:
        if str(error.filename) != str(beside):
            raise
        raise OSError(error.errno, error.strerror, str(target)) from None
    finally:
        with suppress(OSError):
            beside.unlink()


@contextmanager
def whole_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Fill the folder given; it takes the place of ``path`` when the block ends without an error.

    Until then an older folder stays, and an interrupted block leaves nothing. Parents are made.

    Raises:
        OSError: the folder cannot be made.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    new, old = beside / "new", beside / "old"
    try:
        new.mkdir()
        yield new
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except BaseException:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
