"""Cells by processes of this machine: one a core, or one a GPU, each with one thread."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch

from robopos.comparison.cells import Cell, fingerprint, keep_cell
from robopos.comparison.data import StudyData
from robopos.comparison.make import make_cell, work_of
from robopos.comparison.settings import CellKey, StudySettings
from robopos.serving import intra_op_threads

Tell = Callable[[int, str], None]
"""Is told the units of work done, of all cells together, and what is being done."""
SPEAK_EVERY_S = 0.5


def default_workers() -> int:
    """One a GPU, or one a core that this process may use."""
    if torch.cuda.is_available():
        return torch.cuda.device_count()
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_here(data: StudyData, out: Path, keys: Sequence[CellKey], tell: Tell) -> None:
    """One cell after the other, in this process."""
    each = work_of(data)
    with intra_op_threads(1):
        for number, key in enumerate(keys):
            cell = make_cell(data, key, out, partial(_tell_done, tell, number * each, str(key)))
            tell((number + 1) * each, _outcome(cell.key, cell.error))


def _tell_done(tell: Tell, before: int, what: str, done: int) -> None:
    tell(before + done, what)


def run_processes(data: StudyData, out: Path, keys: Sequence[CellKey], workers: int, tell: Tell) -> None:
    """Cells by ``workers`` processes. A process that dies fails its cell and is replaced."""
    pool = _Pool(data, out, list(keys), tell)
    try:
        for number in range(min(workers, len(keys))):
            pool.start(number)
        while pool.busy:
            pool.listen()
    finally:
        pool.stop()


class _Pool:
    """The processes, and what each is at."""

    def __init__(self, data: StudyData, out: Path, keys: list[CellKey], tell: Tell) -> None:
        self._data, self._out, self._waiting, self._tell = data, out, keys, tell
        self._context = multiprocessing.get_context("spawn")
        self._each, self._whole = work_of(data), 0
        self._at: dict[CellKey, int] = {}
        self.busy: dict[Connection, tuple[Any, CellKey, int]] = {}

    def start(self, number: int) -> None:
        """A new process with the next cell; ``number`` picks its GPU."""
        ours, theirs = self._context.Pipe()
        gpu = _gpu(number) if torch.cuda.is_available() else None
        arguments = (self._data.settings, self._out, gpu, theirs)
        process = self._context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self._give(ours, process, number)

    def _give(self, pipe: Connection, process: Any, number: int) -> None:
        if not self._waiting:
            self.busy.pop(pipe, None)
            with suppress(OSError):
                pipe.send(None)
            return
        key = self._waiting.pop(0)
        self.busy[pipe] = process, key, number
        with suppress(OSError):  # it died: listen() hears of it
            pipe.send(key)

    def listen(self) -> None:
        """Wait for news and act on them."""
        for pipe in wait(list(self.busy)):
            assert isinstance(pipe, Connection)
            process, key, number = self.busy[pipe]
            try:
                kind, value = pipe.recv()
            except (EOFError, OSError):
                process.join()
                error = f"the process ended with code {process.exitcode} (out of memory?)"
                print_of = fingerprint(self._data.settings, key, self._data.hashes)
                keep_cell(self._out, Cell(key, error=error), print_of)
                del self.busy[pipe]
                self._finish(key, error)
                if self._waiting:
                    self.start(number)
                continue
            if kind == "at":
                self._at[key] = value
                self._say(str(key))
            else:
                self._finish(key, value)
                self._give(pipe, process, number)

    def _finish(self, key: CellKey, error: str | None) -> None:
        self._at.pop(key, None)
        self._whole += 1
        self._say(_outcome(key, error))

    def _say(self, note: str) -> None:
        self._tell(self._whole * self._each + sum(self._at.values()), note)

    def stop(self) -> None:
        """End what still runs; cells are renamed whole, so nothing half is left under its name."""
        for process, _, _ in self.busy.values():
            process.terminate()
        for process, _, _ in self.busy.values():
            process.join()
        for left in (self._out / "cells").glob(".*"):
            shutil.rmtree(left, ignore_errors=True)


def _gpu(number: int) -> str:
    """The name of a worker's GPU, of those that this process may use."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = allowed.split(",") if allowed else [str(n) for n in range(torch.cuda.device_count())]
    return names[number % len(names)]


def _outcome(key: CellKey, error: str | None) -> str:
    return f"{key}: " + ("done" if error is None else f"failed: {error}")


def _work(settings: StudySettings, out: Path, gpu: str | None, pipe: Connection) -> None:
    """A worker process: cells until it is told that there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(1)
    spoke = 0.0

    def tell(done: int) -> None:
        nonlocal spoke
        if time.monotonic() - spoke >= SPEAK_EVERY_S:
            spoke = time.monotonic()
            try:
                pipe.send(("at", done))
            except OSError:
                os._exit(1)  # nobody listens any more

    with suppress(EOFError):
        data = StudyData(settings)
        while (key := pipe.recv()) is not None:
            cell = make_cell(data, key, out, tell)
            pipe.send(("done", cell.error))
