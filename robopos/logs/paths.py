"""Which files a caller means: files, folders, patterns, rosbag2 recordings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from glob import glob
from pathlib import Path

from robopos.errors import LogError
from robopos.plain_yaml import read_yaml

_SUFFIXES = (".mcap", ".db3", ".bag")
PathLike = str | os.PathLike[str]


def log_files(paths: PathLike | Iterable[PathLike]) -> tuple[Path, ...]:
    """The files of one log in order.

    A rosbag2 folder (with metadata.yaml) gives its files in the order of the recording, another folder its
    `.mcap` files by name, a pattern with `*`, `?` or `[` what it matches by name. Of a folder, names that begin with a
    dot are left out: a writer has not finished those.

    Raises:
        LogError: nothing is there.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    files: list[Path] = []
    for item in given:
        with _named(item):
            files += _expand(Path(item))
    if not files:
        raise LogError("no log was given")
    return tuple(files)


def separate_logs(paths: PathLike | Iterable[PathLike]) -> tuple[Path, ...]:
    """The logs that these paths mean, each by itself: files, and rosbag2 folders as they are.

    A folder without metadata.yaml stands for the `.mcap`, `.db3` and `.bag` files and the rosbag2 folders in it whose
    names do not begin with a dot.

    Raises:
        LogError: nothing is there.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    logs: list[Path] = []
    for item in given:
        with _named(item):
            logs += _separate(Path(item))
    if not logs:
        raise LogError(f"{', '.join(str(item) for item in given) or 'nothing'}: there is no log")
    return tuple(logs)


@contextmanager
def _named(item: PathLike) -> Iterator[None]:
    try:
        yield
    except OSError as error:  # a name that is too long, a folder that may not be read
        raise LogError(f"{str(item)[:200]}: cannot be read ({error.strerror})") from error


def _separate(path: Path) -> list[Path]:
    if not path.exists() and any(letter in str(path) for letter in "*?["):
        return sorted(Path(name) for name in glob(str(path)))
    if path.is_dir() and not (path / "metadata.yaml").is_file():
        inside = [file for suffix in _SUFFIXES for file in _shown(path, f"*{suffix}")]
        return sorted(inside + [file.parent for file in _shown(path, "*/metadata.yaml")])
    return [path]


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        listed = _rosbag2(path) if (path / "metadata.yaml").is_file() else _shown(path, "*.mcap")
        if not listed:
            raise LogError(f"{path}: the folder holds no .mcap file")
        return listed
    if path.exists():
        return [path]
    if any(letter in str(path) for letter in "*?["):
        matched = sorted(Path(name) for name in glob(str(path)))
        if not matched:
            raise LogError(f"{path}: the pattern matches no file")
        return [file for item in matched for file in _expand(item)]
    raise LogError(f"{path}: no such file")


def _shown(folder: Path, pattern: str) -> list[Path]:
    """What a pattern matches in a folder, by name, as a shell does: no name that begins with a dot.

    Such a file is one that a writer has not finished, or that it left when it was killed.
    """
    return sorted(folder / name for name in glob(pattern, root_dir=folder))


def _rosbag2(folder: Path) -> list[Path]:
    try:
        content = read_yaml(folder / "metadata.yaml", LogError)
        names = content["rosbag2_bagfile_information"]["relative_file_paths"]
        # The names alone: a recording lies in its folder, whatever its metadata say.
        files = list(dict.fromkeys(folder / Path(str(name)).name for name in names))
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise LogError(f"{folder / 'metadata.yaml'}: is no rosbag2 metadata ({error!r})") from error
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise LogError(f"{folder}: metadata.yaml names {', '.join(missing)}, which is not there")
    return files
