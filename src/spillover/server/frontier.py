"""The frontier of cost and completion time for this server's own last jobs: what other waits would have cost and saved.

A back-test of many policies takes minutes of CPU. So it runs in a process of its own with low priority, as anybody could
run `spill backtest --sweep`, and asks this server for its history. The last frontier is kept in the data folder.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from msgspec import Struct
from msgspec.structs import replace

from spillover.control.live.loop import Loop
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import main_option, write_choice
from spillover.model.units import DAY, SECOND, format_time
from spillover.ports.commands import CommandError, ErrorKind
from spillover.wire.api import FrontierPoint, FrontierProject, FrontierRequest, FrontierView

log = structlog.get_logger()

FACTORS: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
"""By what the coefficient of the wait policy is multiplied, for the points of the frontier."""
USUAL: Final = 0.076
"""The coefficient of `break_even` in the middle of the frontier, if the present wait policy has none."""
PATIENCE: Final = 1800.0
"""Seconds after which a back-test is given up."""
MOST_SPAN: Final = 366 * DAY
_LOWEST: Final = 19
"""The nice value of the process."""


class Frontier:
    """The last frontier, and the process that makes the next."""

    def __init__(self, loop: Loop, data: Path, *, keep: bool = True) -> None:
        self._loop = loop
        self._data = data
        self._file = data / "frontier.json" if keep else None
        self._view: FrontierView | None = None
        """None until it is read or made."""
        self._task: asyncio.Task[None] | None = None

    def view(self) -> FrontierView:
        """Return the last frontier, and whether another is being made."""
        if self._view is None:
            self._view = self._read() or FrontierView("none")
        return self._view

    def start(self, request: FrontierRequest) -> FrontierView:
        """Begin to make a frontier of the last jobs."""
        if self._task is not None and not self._task.done():
            raise CommandError(ErrorKind.CONFLICT, "a frontier is being made; look again in a while")
        now = self._loop.now()
        since = format_time(max(0, now - min(MOST_SPAN, round(request.span_s * SECOND))))
        policies = self._loop.state.facts.policies
        self._view = replace(
            self.view(), state="computing", message="", started_at=format_time(now), asked_since=since
        )
        self._task = asyncio.create_task(self._make(policies, since), name="frontier")
        return self._view

    async def end(self) -> None:
        """Stop the process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _make(self, policies: PolicySet, since: str) -> None:
        """Run the back-test, and keep what it found."""
        assert self._view is not None  # noqa: S101 - `start` has set it
        try:
            async with asyncio.timeout(PATIENCE):
                found = await self._backtest(policies, since)
        except (_Failed, TimeoutError) as error:
            told = (
                str(error)
                or f"the back-test took longer than {PATIENCE / 60:.0f} minutes; choose a shorter span"
            )
            self._view = replace(self._view, state="failed", message=told)
            return
        self._view = replace(
            found,
            started_at=self._view.started_at,
            asked_since=since,
            computed_at=format_time(self._loop.now()),
        )
        await asyncio.to_thread(self._write, self._view)

    async def _backtest(self, policies: PolicySet, since: str) -> FrontierView:
        """Return the frontier that a process of its own found; raise _Failed."""
        sweeps = [
            word
            for choice in points_of(policies)
            for word in ("--sweep", f"wait={write_choice('wait', choice)}")
        ]
        command = [sys.executable, "-P", "-m", "spillover.cli", "backtest", "--data", str(self._data)]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SPILL_")}
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                *("--since", since, "--json", *sweeps),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environ,
            )
        except OSError as error:
            raise _Failed(f"the back-test cannot be started: {error.strerror or error}") from None
        try:
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, process.pid, _LOWEST)
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            return frontier_of(msgspec.json.decode(out, type=_Backtest), policies)
        except msgspec.DecodeError:
            last = err.decode(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
            raise _Failed(last[0].removeprefix("spill: ")) from None

    def _read(self) -> FrontierView | None:
        if self._file is None:
            return None
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=FrontierView)
        except (OSError, msgspec.DecodeError):
            return None

    def _write(self, view: FrontierView) -> None:
        if self._file is None:
            return
        try:
            new = self._file.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(view))
            new.replace(self._file)
        except OSError as error:
            log.warning("cannot write the frontier", file=str(self._file), error=str(error))


class _Failed(Exception):
    """The back-test found nothing, for this reason."""


class _Measured(Struct):
    """What a back-test tells of one policy."""

    policy: str
    jobs: int
    rented_cost: float
    mean_wait_s: float
    p99_wait_s: float
    max_wait_s: float
    mean_completion_s: float
    projects: list[dict[str, Any]] = []
    written: str = ""
    dominated: bool = False


class _Backtest(Struct):
    """The answer of `spill backtest --json`."""

    jobs: int
    first_at: str | None
    last_at: str | None
    really: _Measured
    error: dict[str, float | int | None]
    remarks: list[str]
    sweep: list[_Measured]


def points_of(policies: PolicySet) -> Iterator[Choice]:
    """Yield the wait policies along the frontier: never waiting, coefficients around the present one, only waiting."""
    now = policies.wait
    option = main_option(f"wait.{now.name}") or ""
    value = now.options.get(option)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value or now.name == "budget":
        now, option, value = Choice("break_even"), "coefficient", USUAL
    yield Choice("zero")
    for factor in FACTORS:
        scaled = round(value * factor) if isinstance(value, int) else float(f"{value * factor:.4g}")
        yield Choice(now.name, {**now.options, option: scaled})
    yield Choice("never")


def frontier_of(found: _Backtest, policies: PolicySet) -> FrontierView:
    """Return the frontier that a back-test found."""
    present = f"wait={write_choice('wait', policies.wait)}"
    points = [_point(each, each.written) for each in found.sweep]
    return FrontierView(
        "ready",
        jobs=found.jobs,
        first_at=found.first_at,
        last_at=found.last_at,
        now=_point(found.really, present),
        points=points,
        wait_error=_share(found.error.get("mean_wait_share")),
        cost_error=_share(found.error.get("cost_share")),
        remarks=found.remarks,
    )


def _share(value: float | None) -> float | None:
    return None if value is None else float(value)


def _point(measured: _Measured, policy: str) -> FrontierPoint:
    return FrontierPoint(
        policy=policy,
        cost=measured.rented_cost,
        mean_wait_s=measured.mean_wait_s,
        p99_wait_s=measured.p99_wait_s,
        max_wait_s=measured.max_wait_s,
        mean_completion_s=measured.mean_completion_s,
        dominated=measured.dominated,
        projects=[project_of(each) for each in measured.projects],
    )


def project_of(change: Mapping[str, Any]) -> FrontierProject:
    """Return what a back-test says of a project: both sides as simulated, so that they differ by the policy alone."""
    return FrontierProject(
        change["project"],
        change["jobs"],
        change["wait_as_ran_s"],
        change["wait_then_s"],
        change["cost_as_ran"],
        change["cost_then"],
        change["verdict"],
    )
