"""`read_logs`: many logs of the same kind, in parallel processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from robopos.errors import LogError
from robopos.logs.log import Log
from robopos.logs.paths import PathLike, separate_logs
from robopos.logs.read import read_log
from robopos.logs.records import OnDamage, StreamSpec
from robopos.stamps import Clock

# Below this many bytes in all, starting processes takes longer than reading.
_WORTH_PROCESSES = 256_000_000


class Logs(NamedTuple):
    """What `read_logs` gives: the logs in the order of their paths, and one line for each that was refused."""

    logs: tuple[Log, ...]
    refused: tuple[str, ...]


class _Tick(Protocol):
    def __call__(self) -> None: ...


def read_logs(
    paths: PathLike | Iterable[PathLike],
    streams: Mapping[str, StreamSpec],
    *,
    clock: Clock = "header",
    on_damage: OnDamage = "error",
    cache: bool = True,
    workers: int | None = None,
    progress: bool = False,
) -> Logs:
    """Read the same topics of many logs; each file, and each rosbag2 folder, is a log of its own.

    Args:
        paths: a file, a rosbag2 folder, a folder of such, a pattern, or a list of them.
        streams, clock, on_damage, cache: as for `read_log`. With `on_damage="skip"` a log that cannot be read at
            all is named in `refused` and does not stop the others.
        workers: processes; None takes the number of processors, or this process alone when there is little to read.
        progress: show a bar on the terminal.

    Raises:
        LogError: with `on_damage="error"`, the first log (by path) that cannot be read.
    """
    given = separate_logs(paths)
    if workers is not None and workers < 1:
        raise LogError(f"read_logs: workers is {workers}; it must be at least 1")
    if workers is None:
        workers = os.cpu_count() or 1 if sum(map(_bytes, given)) >= _WORTH_PROCESSES else 1
    workers = min(workers, len(given))
    options: _Options = (dict(streams), clock, on_damage, cache)
    results: list[Log | str] = [""] * len(given)
    with _bar(len(given), progress) as tick:
        if workers == 1:
            for number, path in enumerate(given):
                results[number] = _read(path, None, *options)
                tick()
        else:
            # Fresh processes: forking a process that has threads may hang.
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(workers, mp_context=context) as pool:
                jobs = {pool.submit(_read, path, 1, *options): number for number, path in enumerate(given)}
                for job in as_completed(jobs):
                    number = jobs[job]
                    try:
                        results[number] = job.result()
                    except BrokenProcessPool:
                        results[number] = f"{given[number]}: the process that read it (or one beside it) was killed"
                    tick()
    refused = tuple(item for item in results if isinstance(item, str))
    if refused and on_damage == "error":
        raise LogError(refused[0])
    return Logs(tuple(item for item in results if isinstance(item, Log)), refused)


_Options = tuple[dict[str, StreamSpec], Clock, OnDamage, bool]


def _read(
    path: Path,
    threads: int | None,
    streams: dict[str, StreamSpec],
    clock: Clock,
    on_damage: OnDamage,
    cache: bool,
) -> Log | str:
    try:
        return read_log(path, streams, clock=clock, on_damage=on_damage, cache=cache, workers=threads)
    except LogError as error:
        return str(error)


def _bytes(path: Path) -> int:
    try:
        files = path.iterdir() if path.is_dir() else [path]
        return sum(file.stat().st_size for file in files)
    except (OSError, ValueError):  # it is not there: reading it says so
        return 0


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[_Tick]:
    if not shown:
        yield lambda: None
        return
    from rich.progress import Progress

    with Progress(transient=True) as bar:
        task = bar.add_task("reading logs", total=total)
        yield lambda: bar.advance(task)
