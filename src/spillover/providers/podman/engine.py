"""Commands of a container engine: how they are run, which containers there are, and what its errors mean."""

import asyncio
import contextlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from spillover.model.pools import RefusalCause
from spillover.ports.provider import NotNow, Refused
from spillover.providers.rest import one_line, said

PATIENCE: Final = 60.0
"""Seconds that a command may take."""
LONGEST_PULL: Final = 1800.0
"""Seconds in which the engine creates a container. It may have to pull the image first."""
FAILED: Final = 125
"""Exit code of an engine that refuses. Any other but 0 says nothing about what it did."""
TAKEN: Final = re.compile(r"name .* is already in use")
_CAUSES: Final = (
    (
        RefusalCause.CAPACITY,
        re.compile(r"no space left|disk quota exceeded|cannot allocate memory|address pool"),
    ),
    (
        RefusalCause.AUTH,
        re.compile(r"unauthorized|authentication required|denied: |invalid username/password"),
    ),
)
"""Errors after which an order is of no use, by words in them. So are all others: INVALID."""
_LATER: Final = re.compile(
    r"connection refused|connection reset|no such host|i/o timeout|tls handshake timeout|network is unreachable|"
    r"temporary failure|too many requests|toomanyrequests|server misbehaving|no route to host|unexpected eof"
)
"""Words in errors that pass by themselves, mostly of a registry."""


class Lost(Exception):
    """A command did not end in time, or was not started; the message says in one line which."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent
        """Whether it may have had an effect."""


class Container(Struct, rename="pascal"):
    """A container, as the engine lists it."""

    id: str = ""
    names: list[str] | None = None
    labels: dict[str, str] | None = None
    state: str = ""
    created: Any = None
    """Seconds UTC."""
    exit_code: int = 0

    @property
    def name(self) -> str:
        """Its name."""
        return self.names[0] if self.names else self.id

    @property
    def tags(self) -> Mapping[str, str]:
        """Its labels."""
        return self.labels or {}

    @property
    def at(self) -> int | None:
        """When it was created, nanoseconds UTC; None if the engine does not say."""
        known = isinstance(self.created, int) and 0 < self.created < 2**33
        return self.created * 10**9 if known else None


class Said(Struct, frozen=True):
    """How a command ended."""

    code: int
    out: bytes
    error: str = field(default="")
    """Its last line on standard error, without the word `Error`."""

    @property
    def ok(self) -> bool:
        """Whether it succeeded."""
        return self.code == 0


class Engine:
    """Runs commands of a container engine."""

    def __init__(self, program: str, environ: Mapping[str, str]) -> None:
        self._program = program
        self._environ = environ
        self._limits: frozenset[str] | None = None

    async def ask(self, *words: str, patience: float = PATIENCE, merged: bool = False) -> Said:
        """Run a command to its end; raise Lost. If merged, its errors are part of its output."""
        try:
            process = await asyncio.create_subprocess_exec(
                *(self._program, *words),
                env=dict(self._environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if merged else subprocess.PIPE,
            )
        except (OSError, ValueError) as error:
            why = one_line(f"{self._program} cannot be started: {said(error)}")
            raise Lost(why, sent=False) from None
        try:
            async with asyncio.timeout(patience):
                out, errors = await process.communicate()
        except TimeoutError:
            raise Lost(f"{self._program} {words[0]} took longer than {patience:.0f} s", sent=True) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        code = process.returncode or 0
        return Said(code, out, _last(errors or b"") or f"{self._program} {words[0]} ended with {code}")

    async def containers(self) -> Sequence[Container]:
        """Return all containers, also those that ended; raise Lost."""
        answer = await self.ask("ps", "--all", "--format", "json")
        if not answer.ok:
            raise Lost(one_line(f"{self._program} ps failed: {answer.error}"), sent=False)
        try:
            return msgspec.json.decode(answer.out.strip() or b"[]", type=list[Container])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Lost(
                one_line(f"the answer of {self._program} ps cannot be read: {error}"), sent=False
            ) from None

    async def limits(self) -> frozenset[str]:
        """Return what the engine can limit, such as `cpu` and `memory`; raise Lost."""
        if self._limits is None:
            answer = await self.ask("info", "--format", "{{json .Host.CgroupControllers}}")
            found: Any = None
            with contextlib.suppress(msgspec.DecodeError):
                found = msgspec.json.decode(answer.out) if answer.ok else None
            if not answer.ok:
                raise Lost(one_line(f"{self._program} info failed: {answer.error}"), sent=False)
            self._limits = frozenset(map(str, found)) if isinstance(found, list) else frozenset()
        return self._limits


def refusal(error: str) -> Refused | NotNow:
    """Return what an error means for the order of a container that does not exist."""
    words = error.lower()
    for cause, pattern in _CAUSES:
        if pattern.search(words):
            return Refused(cause, error)
    return NotNow(error) if _LATER.search(words) else Refused(RefusalCause.INVALID, error)


def _last(errors: bytes) -> str:
    """Return the last line of what a command wrote to standard error."""
    lines = errors.decode(errors="replace").strip().splitlines()
    return one_line(lines[-1]).removeprefix("Error: ").strip() if lines else ""
