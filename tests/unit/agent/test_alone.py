"""A rented machine that nobody needs turns itself off."""

import asyncio
from pathlib import Path

import pytest

from spillover.agent.alone import Company, off_command, turn_off, wait_alone
from spillover.model.units import MINUTE, SECOND


class Machine:
    """A machine whose time passes when its agent waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = 0
        self.wall = 1_000 * SECOND
        self.events: dict[int, tuple[bool, bool]] = {}
        """From when on it is connected, and busy."""
        monkeypatch.setattr("spillover.agent.alone.asyncio.sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.time += int(seconds * SECOND)
        if self.time > 1_000 * MINUTE:
            raise asyncio.CancelledError  # nothing happens any more

    def _now(self) -> tuple[bool, bool]:
        return next((state for at, state in reversed(self.events.items()) if at <= self.time), (False, False))

    async def off_at(self, alone_for: int, join_by: int = 0) -> tuple[int, str] | None:
        """When it turns itself off, and why; None if never."""
        company = Company(
            lambda: self._now()[0], lambda: self._now()[1], lambda: self.time, lambda: self.wall + self.time
        )
        try:
            why = await wait_alone(company, alone_for, join_by)
        except asyncio.CancelledError:
            return None
        return self.time, why


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


async def test_a_machine_without_server_and_tasks_turns_itself_off(machine: Machine) -> None:
    machine.events = {0: (True, True), 10 * MINUTE: (False, True), 20 * MINUTE: (False, False)}
    ended = await machine.off_at(30 * MINUTE)
    assert ended is not None
    at, why = ended
    assert 50 * MINUTE <= at <= 50 * MINUTE + 10 * SECOND
    assert why == "no server and no tasks for 30m"


async def test_a_machine_with_a_server_or_with_tasks_stays(machine: Machine) -> None:
    machine.events = {0: (True, False)}
    assert await machine.off_at(MINUTE) is None
    machine.time, machine.events = 0, {0: (False, True)}
    assert await machine.off_at(MINUTE) is None
    machine.time, machine.events = 0, {}
    assert await machine.off_at(0) is None, "not told to"


async def test_a_server_that_comes_back_in_time_keeps_its_machines(machine: Machine) -> None:
    machine.events = {0: (True, False), MINUTE: (False, False), 9 * MINUTE: (True, False)}
    assert await machine.off_at(10 * MINUTE) is None


async def test_a_machine_that_did_not_join_in_time_turns_itself_off(machine: Machine) -> None:
    assert await machine.off_at(0, machine.wall + 10 * MINUTE) == (
        10 * MINUTE,
        "no server let it join in time",
    )
    machine.time, machine.events = 0, {9 * MINUTE: (True, False), 11 * MINUTE: (False, False)}
    assert await machine.off_at(0, machine.wall + 10 * MINUTE) is None, "it has joined"


async def test_a_machine_whose_clock_is_ahead_still_tries_to_join(machine: Machine) -> None:
    machine.events = {30 * SECOND: (True, False)}
    assert await machine.off_at(0, machine.wall - 1) is None


def test_only_an_agent_that_owns_its_machine_turns_it_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.agent.alone.shutil.which", lambda name: f"/bin/{name}")
    assert off_command("auto", root=True, run=tmp_path) == [], "a container has no init system"
    (tmp_path / "openrc").mkdir()
    assert off_command("auto", root=True, run=tmp_path) == ["poweroff"]
    (tmp_path / "systemd" / "system").mkdir(parents=True)
    assert off_command("auto", root=True, run=tmp_path) == ["systemctl", "poweroff"]
    assert off_command("auto", root=False, run=tmp_path) == []
    assert off_command("exit", root=True, run=tmp_path) == []
    assert off_command("shutdown -h 'now'") == ["shutdown", "-h", "now"]


def test_a_machine_that_cannot_be_turned_off_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert turn_off(["touch", str(tmp_path / "off")])
    assert (tmp_path / "off").exists()
    assert turn_off([])
    assert not turn_off(["false"])
    assert "cannot turn this machine off: false ended with code 1" in caplog.text
    assert not turn_off([str(tmp_path / "none")])
