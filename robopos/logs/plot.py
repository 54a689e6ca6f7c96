"""The clock audit as a picture."""

from __future__ import annotations

import os

import numpy as np

from robopos.errors import LogError
from robopos.files import whole_file
from robopos.logs.audit import Audit, late_of

# More points than this are thinned: the picture would not change.
_POINTS = 20_000


def plot_audit(audits: list[Audit], path: str | os.PathLike[str]) -> None:
    """Draw, over log time, the steps between stamps, header stamp minus log time, and lateness, a line a topic.

    Raises:
        LogError: no topic has two messages, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    shown = [one for one in audits if len(one.log) > 1]
    if not shown:
        raise LogError("nothing to plot: no topic has two messages")
    late = late_of(audits)
    origin = min(int(one.log[0]) for one in shown)
    figure = Figure(figsize=(11, 9), layout="constrained")
    steps, offset, lateness = figure.subplots(3, 1, sharex=True)
    for one in shown:
        thin = slice(None, None, max(1, len(one.log) // _POINTS))
        seconds = (one.log - origin) / 1e9
        steps.plot(seconds[1:][thin], np.diff(one.time)[thin] / 1e6, ".", markersize=2, label=one.topic)
        if one.topic in late:
            stamped = one.stamp != 0
            gap = (one.stamp - one.log)[stamped] / 1e6
            offset.plot(seconds[stamped][thin], gap[thin], ".", markersize=2, label=one.topic)
            lateness.plot(seconds[thin], late[one.topic][thin], ".", markersize=2, label=one.topic)
    steps.set_ylabel("step between stamps (ms)")
    steps.set_yscale("symlog", linthresh=1.0)
    offset.set_ylabel("header stamp − log time (ms)")
    lateness.set_ylabel("behind the newest stamp (s)")
    lateness.set_xlabel("log time (s)")
    steps.legend(loc="upper right", fontsize="small", markerscale=4)
    try:
        with whole_file(path) as beside:
            figure.savefig(beside, dpi=120)
    except (OSError, ValueError) as error:
        raise LogError(f"{path}: the plot cannot be written ({error})") from error
