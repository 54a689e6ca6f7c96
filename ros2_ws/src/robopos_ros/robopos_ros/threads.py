"""How many threads torch may use beside a robot's other processes."""

from __future__ import annotations

import os

import torch


def use_one_thread() -> None:
    """One, unless OMP_NUM_THREADS says otherwise: on busy cores, threads that wait for each other cost tenfold.

    It is also what makes two processes on one machine compute the same bits.
    """
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
