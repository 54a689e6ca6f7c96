"""What `robopos doctor` looks at. Each look is made in a process of its own where an import may end badly."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, NamedTuple

from robopos._version import __version__

PATIENCE_S = 120
MOST_DOMAIN = 232  # as in robopos_ros.process, which may not be there
CORE = ("lightning", "jsonargparse", "numpy", "pandas", "mcap", "safetensors", "matplotlib")
# The extra, the modules it brings, and what asks for them.
EXTRAS = (
    ("rosbags", ("rosbags",), ".db3 and .bag files"),
    ("protobuf", ("google.protobuf",), "protobuf messages"),
    ("cache", ("pyarrow",), "the cache of read columns"),
    ("export", ("onnx", "onnxscript", "onnxruntime"), "export --to onnx"),
)

_TORCH = """
import json, torch
told = {"version": torch.__version__, "built_for": torch.version.cuda, "threads": torch.get_num_threads()}
told["cuda"] = torch.cuda.is_available()
if told["cuda"]:
    told["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    try:
        told["sum"] = float(torch.ones(2, device="cuda").sum())
    except RuntimeError as error:
        told["error"] = " ".join(str(error).split())[:200]
print(json.dumps(told))
"""
_RCLPY = """
import json, os, sys
os.environ.pop("ROS_DOMAIN_ID", None)  # looked at by itself
try:
    import rclpy
except ImportError as error:
    print(json.dumps({"absent": " ".join(f"{type(error).__name__}: {error}".split())}))
    sys.exit()
told = {"where": os.path.dirname(rclpy.__file__), "distribution": os.environ.get("ROS_DISTRO", "")}
rclpy.init(args=[])
told["rmw"] = rclpy.get_rmw_implementation_identifier()
try:
    from rclpy.experimental.events_executor import EventsExecutor
    told["events"] = True
except ImportError:
    told["events"] = False
rclpy.try_shutdown()
print(json.dumps(told))
"""
_NODE = """
import json, os, robopos_ros
from robopos_ros.node import Predictor
print(json.dumps({"where": os.path.dirname(robopos_ros.__file__)}))
"""


class Finding(NamedTuple):
    """One thing looked at: `state` is ok, missing (of what is optional) or broken."""

    state: str
    what: str
    said: str
    remedy: str = ""


def examine() -> list[Finding]:
    """All findings, in the order in which they build on each other."""
    found = [_python(), *_core(), *_torch(), _compiler(), *_extras()]
    ros = _ros()
    found += ros
    if ros[0].state == "ok":
        found.append(_node())
    return found


def _python() -> Finding:
    where = "" if sys.prefix != sys.base_prefix else " (no virtual environment)"
    return Finding("ok", "python", f"{platform.python_version()} on {platform.machine()}, {sys.prefix}{where}")


def _core() -> list[Finding]:
    found = [Finding("ok", "robopos", f"{__version__}, {os.path.dirname(os.path.dirname(__file__))}")]
    for name in CORE:
        try:
            found.append(Finding("ok", name, version(name)))
        except PackageNotFoundError:
            found.append(Finding("broken", name, "not installed", f"pip install {name}"))
    return found


def _compiler() -> Finding:
    name = os.environ.get("CXX", "g++")
    where = shutil.which(name)
    if where is None:
        said = f"no {name}: --step compile and export --to aotinductor ask for it"
        return Finding("missing", "compiler", said, "apt install g++, or name another in CXX")
    return Finding("ok", "compiler", where)


def _extras() -> list[Finding]:
    found = []
    for extra, modules, asking in EXTRAS:
        missing = [module for module in modules if not _is_there(module)]
        if missing:
            said = f"{', '.join(missing)} not installed: for {asking}"
            found.append(Finding("missing", extra, said, f"pip install 'robopos[{extra}]'"))
        else:
            found.append(Finding("ok", extra, f"for {asking}"))
    return found


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent is not there
        return False


def _torch() -> list[Finding]:
    told, error = _ask(_TORCH)
    if error:
        return [Finding("broken", "torch", error, "pip install torch (on Jetson: NVIDIA's own wheel for its JetPack)")]
    found = [Finding("ok", "torch", f"{told['version']}, {told['threads']} threads")]
    if "error" in told:
        found.append(Finding("missing", "cuda", told["error"], "the driver and torch's CUDA do not fit each other"))
    elif told["cuda"]:
        found.append(Finding("ok", "cuda", f"{told['built_for']}: {', '.join(told['devices'])}"))
    elif told["built_for"] is None:
        remedy = "" if _has_nvidia() is None else "install a torch built with CUDA"
        found.append(Finding("missing", "cuda", "this torch is built for the CPU alone", remedy))
    else:
        said = f"torch is built for CUDA {told['built_for']}, but finds no usable NVIDIA device"
        remedy = "check nvidia-smi: the driver may be older than this CUDA" if _has_nvidia() else ""
        found.append(Finding("missing", "cuda", said, remedy))
    return found


def _has_nvidia() -> str | None:
    return next((path for path in ("/dev/nvidiactl", "/dev/nvhost-gpu") if os.path.exists(path)), None)


def _ros() -> list[Finding]:
    told, error = _ask(_RCLPY)
    if absent := told.get("absent"):
        distribution = os.environ.get("ROS_DISTRO")
        remedy = "pip install 'robopos[ros]' (x86-64 Linux), or source the set-up of a ROS 2 installation"
        if distribution:
            remedy = (
                f"ROS_DISTRO is {distribution}: its rclpy needs the Python that it was built for; make the virtual "
                "environment with that one and --system-site-packages"
            )
        return [Finding("missing", "rclpy", absent, remedy)]
    if error:  # rclpy is there, but does not start: the middleware ends the process without an exception
        asked = os.environ.get("RMW_IMPLEMENTATION")
        remedy = f"RMW_IMPLEMENTATION is {asked}: install that middleware, or unset it" if asked else ""
        return [Finding("missing", "rmw", error, remedy), _domain()]
    distribution = told["distribution"] or "no ROS_DISTRO set, as with the wheels"
    found = [Finding("ok", "rclpy", f"{distribution}; {told['where']}"), Finding("ok", "rmw", told["rmw"])]
    said = "events" if told["events"] else "single-threaded: this distribution has no events executor"
    found.append(Finding("ok", "executor", said))
    return [*found, _domain()]


def _domain() -> Finding:
    text = os.environ.get("ROS_DOMAIN_ID", "")
    if not text:
        return Finding("ok", "domain", "ROS_DOMAIN_ID 0 (not set)")
    if text.isascii() and text.isdecimal() and int(text) <= MOST_DOMAIN:
        return Finding("ok", "domain", f"ROS_DOMAIN_ID {text}")
    said = f"ROS_DOMAIN_ID is {text!r}: neither robopos serve nor robopos play starts"
    return Finding("missing", "domain", said, f"set it to a whole number from 0 to {MOST_DOMAIN}, or unset it")


def _node() -> Finding:
    told, error = _ask(_NODE)
    if error:
        return Finding(
            "missing", "robopos_ros", error, "pip install --no-deps ros2_ws/src/robopos_ros, or colcon build"
        )
    return Finding("ok", "robopos_ros", told["where"])


def _ask(code: str) -> tuple[dict[str, Any], str]:
    """What a piece of code prints as JSON, or why it failed, in one line."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return {}, f"no answer within {PATIENCE_S} s"
    if done.returncode == 0 and done.stdout.strip():
        return json.loads(done.stdout.strip().splitlines()[-1]), ""
    lines = done.stderr.strip().splitlines()
    return {}, lines[-1] if lines else f"ended with exit code {done.returncode}"
