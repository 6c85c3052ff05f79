"""Provides Python environments for tasks: those that the agent has by name, and those that it builds from requirements.

It builds with `uv` where that is on PATH, else with `venv` and `pip`, in their own configuration, which says where
packages come from. Lock files of PEP 751 need recent ones: an old `uv` is not used for them, and an old `pip` is replaced
in the environment, which has that of its interpreter. An environment is built once, however many tasks ask for it, and kept until others need its space.
"""

import asyncio
import hashlib
import logging
import os
import re
import secrets
import shutil
import signal
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from spillover.agent.files.task_folders import remove_folder
from spillover.agent.runners.port import RunnerOffer
from spillover.agent.runners.python import version_of
from spillover.agent.tasks.process import stem_of
from spillover.core.events import Lease
from spillover.model.admission import ENVIRONMENT, REQUIREMENTS
from spillover.model.job import Environment
from spillover.model.units import format_duration

LONGEST: Final = 1800.0
"""Seconds that a build may take."""
MOST_WORDS: Final = 64 << 10
"""Most bytes of what the installer said to put into the output of a task."""
_BUILT: Final = "spillover-built"
"""The file in an environment that is complete. It holds the size in bytes."""
UV_FOR_LOCKS: Final = (0, 6, 15)
"""The first release of uv that installs from a pylock.toml."""
PIP_FOR_LOCKS: Final = "26.1"
"""The first release of pip that does."""
_NEW_PIP: Final = f"pip>={PIP_FOR_LOCKS}"
_NEWER: Final = (
    f"a pylock.toml needs pip {PIP_FOR_LOCKS}, or uv {'.'.join(map(str, UV_FOR_LOCKS))} on the PATH of the agent; "
    "without them export the lock file to a requirements.txt"
)
_PASSED: Final = ("PATH", "HOME", "USER", "LANG", "TMPDIR")
_PREFIXES: Final = ("PIP_", "UV_", "XDG_", "SSL_", "REQUESTS_CA", "HTTP_", "HTTPS_", "NO_", "ALL_")
"""Variables that installers get, with names in any case."""

log = logging.getLogger("spillover.agent")


class Unbuilt(Exception):
    """There is no such environment, and none could be built; the message says why."""


class PythonEnvironment(NamedTuple):
    """An environment that is there."""

    python: str
    """Its interpreter."""
    folder: str = ""
    """Of the virtual environment; empty if it is an interpreter alone."""

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a task that runs in it, which has these already."""
        path = env.get("PATH") or os.environ.get("PATH", os.defpath)
        found = {"PATH": f"{os.path.dirname(self.python)}:{path}"}  # noqa: PTH120 - a text
        return found | {"VIRTUAL_ENV": self.folder} if self.folder else found


class Environments:
    """The environments of one agent."""

    def __init__(self, folder: Path, python: str, named: Mapping[str, str], bound: int) -> None:
        self._folder = folder / "environments"
        self._output = folder / "output"
        self._python = (shutil.which(python) or python) if python else sys.executable
        self._version = ""
        self._named = {name: _at(Path(path).absolute()) for name, path in named.items()}
        self._bound = bound
        self._uv = ""
        self._uv_release: tuple[int, ...] = ()
        self._has_venv = False
        self._found: dict[str, PythonEnvironment] = {}
        self._sizes: dict[str, int] = {}
        """Bytes of each environment that was built, the least recently used first."""
        self._building: dict[str, asyncio.Task[None]] = {}
        self._used: dict[Lease, str] = {}

    async def open(self) -> RunnerOffer:
        """Look at what there is; return what to offer."""
        words: list[str] = []
        missing: dict[str, str] = {}
        for name, found in self._named.items():
            if version := await version_of(found.python):
                self._found[name] = found
                words += [f"{ENVIRONMENT}{name}", f"{ENVIRONMENT}{name}:{version}"]
            else:
                missing[f"{ENVIRONMENT}{name}"] = f"{found.python} cannot be run"
        self._version = await version_of(self._python)
        self._uv = shutil.which("uv") or ""
        self._has_venv = bool(self._version) and await _has_venv(self._python)
        self._sizes = await asyncio.to_thread(self._index)
        await self._make_room()
        if self._version and (self._uv or self._has_venv):
            words.append(REQUIREMENTS)
        else:
            missing[REQUIREMENTS] = f"{self._python} has no venv, and PATH has no uv"
        return RunnerOffer(tuple(words), missing)

    async def close(self) -> None:
        """Stop all builds."""
        for building in self._building.values():
            building.cancel()
        await asyncio.gather(*self._building.values(), return_exceptions=True)

    async def take(self, lease: Lease, asked: Environment) -> PythonEnvironment:
        """Return an environment for a task, which has it until `leave`; build it first if needed. Raises Unbuilt."""
        if asked.name:
            if asked.name not in self._found:
                raise Unbuilt(f"this agent has no environment {asked.name}")
            return self._found[asked.name]
        text = asked.text or ""
        key = f"{hashlib.sha256(text.encode()).hexdigest()[:32]}-{self._version}"
        self._used[lease] = key
        if key not in self._sizes:
            building = self._building.get(key)
            if building is None:
                building = self._building[key] = asyncio.create_task(
                    self._build(key, text, lock=asked.is_lock)
                )
                building.add_done_callback(lambda done: self._over(key, done))
            try:
                await asyncio.shield(building)
            except Unbuilt as error:
                self.leave(lease)
                await asyncio.to_thread(self._tell, lease, key)
                raise Unbuilt(f"cannot build its environment: {error}") from None
        self._sizes[key] = self._sizes.pop(key)
        await asyncio.to_thread(os.utime, self._folder / key / _BUILT)
        return _at(self._folder / key)

    def leave(self, lease: Lease) -> None:
        """Record that a task no longer uses its environment."""
        self._used.pop(lease, None)

    def _over(self, key: str, done: "asyncio.Task[None]") -> None:
        """Forget a build that ended."""
        self._building.pop(key, None)
        if not done.cancelled():
            done.exception()  # those who wait have it; without them, asyncio would complain

    # --- building

    async def _build(self, key: str, text: str, *, lock: bool) -> None:
        """Build an environment from a list of packages or a lock file; raise Unbuilt with the words of the installer."""
        place, listed, said = self._folder / key, self._listed(key, lock=lock), self._said(key)
        log.info("building environment %s", key)
        try:
            await asyncio.to_thread(remove_folder, place)
            listed.write_text(text, encoding="utf-8")
            said.write_bytes(b"")
            async with asyncio.timeout(LONGEST):
                for words in await self._commands(place, listed, lock=lock):
                    if await _run(words, self._folder, said):
                        why = await asyncio.to_thread(_last_words, said)
                        old = words[-1] == _NEW_PIP or (
                            lock and words[0] == self._uv and await self._is_old_uv()
                        )
                        raise Unbuilt(f"{why} ({_NEWER})" if old else why)
            size = await asyncio.to_thread(_size_of, place)
            (place / _BUILT).write_text(f"{size}\n", encoding="ascii")
        except TimeoutError:
            raise Unbuilt(f"that took longer than {format_duration(int(LONGEST * 1e9))}") from None
        except OSError as error:
            raise Unbuilt(f"{error.filename}: {error.strerror}") from None
        finally:
            listed.unlink(missing_ok=True)
            if not (place / _BUILT).exists():
                await asyncio.to_thread(remove_folder, place)
        said.unlink(missing_ok=True)
        self._sizes[key] = size
        await self._make_room()

    async def _commands(self, place: Path, listed: Path, *, lock: bool) -> tuple[tuple[str, ...], ...]:
        """Return the commands that build an environment."""
        python = str(place / "bin" / "python")
        if self._uv and not (lock and await self._is_old_uv() and self._has_venv):
            uv = (self._uv, "pip", "install", "--python", python, "--requirements", str(listed))
            return (self._uv, "venv", "--python", self._python, str(place)), uv
        make = (self._python, "-m", "venv", str(place))
        pip = (python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input")
        install = (*pip, "--requirement", str(listed))
        return (make, (*pip, _NEW_PIP), install) if lock else (make, install)

    async def _is_old_uv(self) -> bool:
        """Return whether uv cannot read lock files."""
        if not self._uv_release:
            self._uv_release = await _release_of(self._uv)
        return self._uv_release < UV_FOR_LOCKS

    def _tell(self, lease: Lease, key: str) -> None:
        """Append what the installer said to the errors of a task."""
        stem = stem_of(self._output, lease.job, lease.attempt, lease.task)
        try:
            said = self._said(key).read_bytes()[-MOST_WORDS:]
            stem.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(f"{stem}.err", "ab") as errors:  # noqa: PTH123 - the stem may have a dot
                errors.write(said)
        except OSError as error:
            log.warning("cannot store what the installer said for %s: %s", lease.job, error)

    def _listed(self, key: str, *, lock: bool) -> Path:
        """Return the file for the installer, which knows a lock file by its name."""
        return self._folder / (f"pylock.{key.replace('.', '-')}.toml" if lock else f"{key}.txt")

    def _said(self, key: str) -> Path:
        return self._folder / f"{key}.log"

    # --- the cache

    def _index(self) -> dict[str, int]:
        """Return the sizes of environments that an earlier run built; delete what it left unfinished."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found: list[tuple[int, str, int]] = []
        for place in self._folder.iterdir():
            built = place / _BUILT
            try:
                found.append((built.stat().st_mtime_ns, place.name, int(built.read_text(encoding="ascii"))))
            except (OSError, ValueError):
                if place.is_dir():
                    remove_folder(place)
                else:
                    place.unlink(missing_ok=True)
        return {name: size for _, name, size in sorted(found)}

    async def _make_room(self) -> None:
        """Delete environments that nobody uses, the least recently used first, while there are too many bytes."""
        for key in [*self._sizes]:
            if sum(self._sizes.values()) <= self._bound:
                return
            # A task may have taken it while another was deleted.
            if key in self._sizes and key not in self._building and key not in self._used.values():
                del self._sizes[key]
                log.info("deleting environment %s", key)
                await asyncio.to_thread(remove_folder, self._aside(key))

    def _aside(self, key: str) -> Path:
        """Take an environment out of its place, where a task may build it again while this one is deleted."""
        place, aside = self._folder / key, self._folder / f"{secrets.token_hex(8)}.gone"
        try:
            (place / _BUILT).unlink(
                missing_ok=True
            )  # else a later start would take it for one that was built
            place.rename(aside)
        except OSError as error:
            log.warning("cannot move environment %s: %s", key, error)
            return place
        return aside


def _at(path: Path) -> PythonEnvironment:
    """Return the environment at a path: a folder, or an interpreter."""
    if path.is_dir():
        folder = str(path) if (path / "pyvenv.cfg").exists() else ""
        return PythonEnvironment(str(path / "bin" / "python"), folder)
    return PythonEnvironment(str(path))


async def _has_venv(python: str) -> bool:
    """Return whether an interpreter makes environments. Debian leaves ensurepip out of its own."""
    if (
        python == sys.executable
    ):  # without a process: on one host, hundreds of agents may start at the same time
        return all(find_spec(module) is not None for module in ("ensurepip", "venv"))
    return await _works(python, "-c", "import ensurepip, venv")


async def _works(*words: str) -> bool:
    """Return whether a command succeeds."""
    null = asyncio.subprocess.DEVNULL
    try:
        asked = await asyncio.create_subprocess_exec(*words, stdin=null, stdout=null, stderr=null)
    except OSError:
        return False
    return await asked.wait() == 0


async def _release_of(uv: str) -> tuple[int, ...]:
    """Return the release of a uv; that of one that does not say it is (0,)."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        asked = await asyncio.create_subprocess_exec(uv, "--version", stdin=null, stdout=pipe, stderr=null)
    except OSError:
        return (0,)
    said, _ = await asked.communicate()
    found = re.match(rb"uv (\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found.groups())) if found else (0,)


async def _run(words: tuple[str, ...], folder: Path, said: Path) -> int:
    """Run a command of an installer; return its exit code. Nothing of it is left, even if it is cancelled."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED or name.upper().startswith(_PREFIXES)
    }
    with said.open("ab") as output:
        installer = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env=env,
            start_new_session=True,
        )
    try:
        return await installer.wait()
    finally:
        if installer.returncode is None:
            os.killpg(installer.pid, signal.SIGKILL)
            await installer.wait()


def _last_words(said: Path) -> str:
    """Return the line in which an installer says what is wrong; the last line if none does."""
    lines = [
        line.strip()
        for line in said.read_text(encoding="utf-8", errors="replace").splitlines()
        if line.strip()
    ]
    wrong = [line for line in lines if line.lower().startswith(("error", "\u00d7"))]
    return (wrong or lines or ["it gave no reason"])[-1][:500]


def _size_of(place: Path) -> int:
    """Return the bytes below a folder."""
    return sum(path.lstat().st_size for path in place.rglob("*"))
