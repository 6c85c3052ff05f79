"""Agents and servers that die, stand still, come back and disagree: real processes, a scripted server."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psutil
import pytest

from spillover.agent.__main__ import main
from spillover.model.units import SECOND
from spillover.wire import agents_pb2 as pb
from tests.support.agent_process import AgentProcess, a_grant
from tests.support.scripted_server import ScriptedServer, key_of
from tests.support.waiting import until


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(tmp_path / "data") as server:
        yield server


@pytest.fixture
async def agent(server: ScriptedServer) -> AsyncIterator[AgentProcess]:
    async with AgentProcess(server.data) as agent:
        await server.connected()
        yield agent


async def running(server: ScriptedServer, *grants: pb.Grant) -> None:
    server.grant(*grants)
    await server.until(lambda: {key_of(grant.lease) for grant in grants} <= set(server.started))


async def result(server: ScriptedServer, grant: pb.Grant) -> pb.TaskResult:
    await server.until(lambda: key_of(grant.lease) in server.results)
    return server.results[key_of(grant.lease)]


def successor(server: ScriptedServer, *, epoch: int) -> ScriptedServer:
    """Another server in the place of the one that is gone."""
    new = ScriptedServer(server.data, epoch=epoch)
    new.incarnation = server.incarnation
    return new


def tasks_of(agent: AgentProcess) -> list[psutil.Process]:
    """Processes of tasks, wherever they are in the tree."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SPILL_AGENT") == str(agent.folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def nurseries_of(agent: AgentProcess) -> list[psutil.Process]:
    return psutil.Process(agent.pid).children()


# --- the agent dies


async def test_a_killed_agent_leaves_no_task_running(server: ScriptedServer, agent: AgentProcess) -> None:
    await running(server, a_grant("a", "sleep 600"), a_grant("b", "setsid sleep 600 & sleep 600"))
    nurseries, tasks = nurseries_of(agent), tasks_of(agent)
    assert len(nurseries) == 2
    assert len(tasks) >= 2
    await agent.kill()
    _, left = await asyncio.to_thread(psutil.wait_procs, [*nurseries, *tasks], 10)
    assert not left


async def test_a_restarted_agent_reports_its_earlier_tasks_as_lost(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant("a", "echo hello; sleep 600")
    await running(server, grant)
    server.read(pb.OutputRead(id=1, job="a", attempt=1, follow=True))
    await server.until(lambda: server.output[1] == b"hello\n")
    await agent.kill()
    await agent.start()
    lost = await result(server, grant)
    assert (lost.outcome, lost.message) == (pb.LOST, "its agent died while it ran")
    again = server.registrations[-1]
    assert again.life != server.registrations[0].life
    assert [(held.lease.job, held.phase) for held in again.held] == [("a", pb.ENDED)]
    server.read(pb.OutputRead(id=2, job="a", attempt=1))
    await server.until(lambda: 2 in server.output_ended)
    assert server.output[2] == b"hello\n"


async def test_a_restarted_agent_ends_an_earlier_life_that_could_not_end_itself(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant("a", "setsid sleep 600 & sleep 600")
    await running(server, grant)
    nurseries, tasks = nurseries_of(agent), tasks_of(agent)
    for nursery in nurseries:
        nursery.kill()
    await agent.kill()
    await agent.start()
    assert (await result(server, grant)).outcome == pb.LOST
    _, left = await asyncio.to_thread(psutil.wait_procs, tasks, 10)
    assert not left


async def test_results_survive_the_death_of_server_and_agent(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    go, done = tmp_path / "go", agent.folder / "spool"
    grant = a_grant("a", f"while [ ! -e {go} ]; do sleep 0.02; done; exit 7")
    await running(server, grant)
    await server.stop()
    go.touch()
    await in_file(done, b'"exited"')
    await agent.kill()
    await agent.start()
    async with successor(server, epoch=2) as later:
        told = await result(later, grant)
        assert (told.outcome, told.exit_code) == (pb.EXITED, 7)
        assert later.told[key_of(grant.lease)] == 1


async def in_file(path: Path, text: bytes) -> None:
    """Wait until a file has a text; there is nobody left who could tell."""
    await until(lambda: text in path.read_bytes(), f"{text!r} in {path.name}")


def _runs(processes: Sequence[psutil.Process], job: str) -> bool:
    """Whether one of these is of a job."""
    return any(process.environ().get("SPILL_JOB_ID") == job for process in processes)


async def test_a_nursery_that_dies_costs_its_own_tasks_only(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    first, second, third = (
        a_grant("a", "sleep 600 & sleep 600"),
        a_grant("b", "sleep 600"),
        a_grant("c", "exit 4"),
    )
    await running(server, first, second)
    parents = {nursery: nursery.children(recursive=True) for nursery in nurseries_of(agent)}
    dies, lives = sorted(parents, key=lambda nursery: _runs(parents[nursery], "a"), reverse=True)
    assert _runs(parents[lives], "b"), "each has one of the two"
    server.grant(third)
    dies.kill()
    done = await result(server, first)
    assert (done.outcome, done.message) == (pb.LOST, "the process that ran it died")
    assert not [process for process in tasks_of(agent) if _runs([process], "a")], (
        "told once all of it is gone"
    )
    assert (await result(server, third)).exit_code == 4
    assert all(process.is_running() for process in parents[lives])
    fourth, fifth = a_grant("d", "exit 5", cpu=500), a_grant("e", "exit 6", cpu=500)
    server.grant(fourth, fifth)
    assert (await result(server, fourth)).exit_code == 5
    assert (await result(server, fifth)).exit_code == 6
    await until(lambda: len(nurseries_of(agent)) == 2, "another nursery in its place")
    assert key_of(second.lease) not in server.results


async def test_an_agent_that_is_told_to_stop_stops_its_tasks_and_says_so(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    runs, waits = a_grant("a", "sleep 600", cpu=2000), a_grant("b", "true", cpu=2000)
    await running(server, runs)
    server.grant(waits)
    before = server.heartbeats
    await server.until(lambda: server.heartbeats > before + 2)
    assert await agent.stop() == 0
    assert server.results[key_of(runs.lease)].outcome == pb.STOPPED
    assert server.results[key_of(runs.lease)].signal == signal.SIGTERM
    assert server.released[key_of(waits.lease)] == 1
    assert not tasks_of(agent)
    assert not (agent.folder / "agent.json").exists()


async def test_a_second_agent_of_the_same_name_exits_with_one_line(
    server: ScriptedServer, agent: AgentProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(server.data), "--name", "n1", "--cluster", "lab"]
    with pytest.raises(SystemExit) as end:
        await asyncio.to_thread(main, words)
    assert end.value.code == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert f"another agent (pid {agent.pid}) uses" in line


# --- the server dies or stands still


async def test_running_tasks_are_kept_while_the_server_is_away(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    grant = a_grant(
        "a", f"echo started >> {tmp_path}/starts; while [ ! -e {go} ]; do sleep 0.02; done; exit 3"
    )
    waits = a_grant("b", "exit 4", cpu=2000)
    await running(server, grant)
    server.grant(waits)
    before = server.heartbeats
    await server.until(lambda: server.heartbeats > before + 2)
    await server.stop()
    async with successor(server, epoch=2) as later:
        await later.connected()
        held = {entry.lease.job: entry.phase for entry in later.registrations[-1].held}
        assert held == {"a": pb.RUNNING, "b": pb.WAITING}
        go.touch()
        assert (await result(later, grant)).exit_code == 3
        assert (await result(later, waits)).exit_code == 4
        assert (tmp_path / "starts").read_text() == "started\n"


async def test_leases_that_the_server_does_not_keep_are_stopped(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    gone, kept = a_grant("a", "sleep 600"), a_grant("b", "sleep 0.5; exit 3")
    await running(server, gone, kept)
    await server.stop()
    later = successor(server, epoch=2)
    later.keeps = lambda lease: lease.job == "b"
    async with later:
        assert (await result(later, gone)).outcome == pb.STOPPED
        assert (await result(later, kept)).exit_code == 3


@pytest.mark.slow  # it waits for the ends of leases
async def test_a_server_that_stands_still_costs_unacknowledged_tasks_first(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "data")
    server.short_term = 2 * SECOND
    async with server, AgentProcess(server.data) as agent:
        await server.connected()
        long, brief = a_grant("a", "sleep 600"), a_grant("b", "sleep 600", lost_after=3 * SECOND)
        await running(server, long, brief)
        server.acknowledges = False
        third = a_grant("c", "sleep 600", cpu=0)
        await running(server, third)
        tasks = {process.environ()["SPILL_JOB_ID"]: process for process in tasks_of(agent)}
        server.silent = True
        await asyncio.to_thread(tasks["c"].wait, 10)
        assert tasks["b"].is_running()
        await asyncio.to_thread(tasks["b"].wait, 10)
        assert tasks["a"].is_running()
        server.silent = False
        assert (await result(server, third)).outcome == pb.LOST
        assert (await result(server, brief)).outcome == pb.LOST
        assert tasks["a"].is_running()


class _Distracted(ScriptedServer):
    """Leaves the heartbeats of one registration without an answer."""

    ignored = 0

    async def _renewed(self, request: pb.HeartbeatRequest) -> pb.HeartbeatReply:
        if request.incarnation == self.ignored:
            await asyncio.Event().wait()
        return await super()._renewed(request)


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "calls"])
async def test_a_heartbeat_without_an_answer_costs_no_task_of_a_short_term(
    tmp_path: Path, *, streams: bool
) -> None:
    async with _Distracted(tmp_path / "data") as server, AgentProcess(server.data) as agent:
        server.streams = streams
        await server.connected()
        grant = a_grant("a", "exec sleep 600", lost_after=4 * SECOND)
        await running(server, grant)
        (task,) = tasks_of(agent)
        acknowledged_by = server.heartbeats + 2
        await server.until(lambda: server.heartbeats >= acknowledged_by)
        server.ignored = server.incarnation
        await server.until(lambda: len(server.registrations) == 2)
        (held,) = server.registrations[1].held
        assert (held.lease.job, held.phase) == ("a", pb.RUNNING)
        assert task.is_running()


@pytest.mark.slow  # it waits for the ends of leases
async def test_a_stopped_agent_that_wakes_after_its_terms_has_nothing_running(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "data")
    server.short_term = 2 * SECOND
    async with server, AgentProcess(server.data) as agent:
        await server.connected()
        grant = a_grant("a", "exec sleep 600", lost_after=3 * SECOND)
        await running(server, grant)
        acknowledged_by = server.heartbeats + 2
        await server.until(lambda: server.heartbeats >= acknowledged_by)
        (task,) = tasks_of(agent)
        agent.signal(signal.SIGSTOP)
        await asyncio.sleep(3.5)
        agent.signal(signal.SIGCONT)
        assert (await result(server, grant)).outcome == pb.LOST
        assert not task.is_running()


async def test_an_agent_lives_by_the_terms_that_it_is_told_and_says_so(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    assert agent.pid
    assert server.attended == 1
    terms = pb.Terms(number=1, heartbeat=SECOND // 20, short_term=20 * SECOND)
    server.order(pb.HeartbeatReply(epoch=1, terms=terms))
    await server.until(lambda: server.last_heartbeat.terms == 1)
    begun, before = time.monotonic(), server.heartbeats
    await server.until(lambda: server.heartbeats >= before + 20)
    assert time.monotonic() - begun < 20 * server.heartbeat / SECOND, "it would have taken as long as before"


async def test_an_agent_renews_with_calls_where_the_server_has_no_stream_for_it(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "data")
    server.streams = False
    async with server, AgentProcess(server.data):
        await server.connected()
        grant = a_grant("a", "exit 3")
        server.grant(grant)
        assert (await result(server, grant)).exit_code == 3
        await server.until(lambda: server.heartbeats >= 3)
        assert server.attended == 0


# --- disagreement


async def test_a_fenced_agent_stops_its_tasks_and_registers_anew(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant("a", "sleep 600")
    await running(server, grant)
    server.order(pb.HeartbeatReply(epoch=1, fenced=True))
    await server.until(lambda: len(server.registrations) == 2)
    assert [(held.lease.job, held.phase) for held in server.registrations[1].held] == [("a", pb.ENDED)]
    assert (await result(server, grant)).outcome == pb.LOST
    await server.connected()
    after = a_grant("b", "exit 3")
    server.grant(after)
    assert (await result(server, after)).exit_code == 3


async def test_an_agent_that_was_replaced_stops_its_tasks_before_it_registers_anew(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    grant = a_grant("a", "sleep 600")
    await running(server, grant)
    server.replace()
    await server.until(lambda: len(server.registrations) == 2)
    assert [(held.lease.job, held.phase) for held in server.registrations[1].held] == [("a", pb.ENDED)]
    assert (await result(server, grant)).outcome == pb.LOST


async def test_a_fenced_result_is_dropped_and_nothing_else(
    server: ScriptedServer, agent: AgentProcess
) -> None:
    stays, unwanted = a_grant("a", "sleep 0.5; exit 3"), a_grant("b", "true")
    server.verdict = lambda done: pb.FENCED if done.lease.job == "b" else pb.ACCEPTED
    server.grant(stays, unwanted)
    assert (await result(server, stays)).exit_code == 3
    assert server.told[key_of(unwanted.lease)] == 1
    assert len(server.registrations) == 1


async def test_a_server_of_a_lower_epoch_is_refused(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "data", epoch=5)
    async with server, AgentProcess(server.data) as agent:
        await server.connected()
        grant = a_grant("a", "exec sleep 600")
        await running(server, grant)
        await server.stop()
        async with successor(server, epoch=4) as old:
            await old.until(lambda: len(old.registrations) >= 2)
            assert len(tasks_of(agent)) == 1
            assert old.heartbeats == 0
            assert "rejected a server of epoch 4" in agent.said()
        async with successor(server, epoch=6) as new:
            await new.connected()
            assert [held.lease.job for held in new.registrations[-1].held] == ["a"]


async def test_grants_of_a_lower_epoch_start_nothing(server: ScriptedServer, agent: AgentProcess) -> None:
    server.epoch = 3
    await server.until(lambda: server.heartbeats > 2)
    server.grant(a_grant("a", "true"), epoch=2)
    await server.until(lambda: len(server.registrations) == 2)
    assert not server.registrations[1].held
    assert not server.results


async def test_an_agent_with_a_wrong_token_waits_for_the_right_one(tmp_path: Path) -> None:
    server = ScriptedServer(tmp_path / "data")
    async with server, AgentProcess(server.data) as agent:
        right = (server.data / "token").read_text()
        (server.data / "token").write_text("wrong")
        await in_file(server.data / "n1.log", b"not connected: no valid token; retrying every 5 s\n")
        assert not server.registrations
        (server.data / "token").write_text(right)
        await server.connected()
        assert "Traceback" not in agent.said()


# --- many


async def test_two_thousand_tasks_are_each_reported_exactly_once(
    server: ScriptedServer, agent: AgentProcess, tmp_path: Path
) -> None:
    count, ahead, sent = 2_000, 64, 0
    while len(server.results) < count:
        room = min(ahead - (sent - len(server.results)), count - sent)
        server.grant(*(a_grant(f"job{sent + i}", argv=("true",)) for i in range(room)))
        sent += room
        before = len(server.results)
        await server.until(lambda before=before: len(server.results) > before)  # type: ignore[misc]
    assert set(server.told.values()) == {1}
    assert {done.exit_code for done in server.results.values()} == {0}
    assert {done.outcome for done in server.results.values()} == {pb.EXITED}
    assert await agent.stop() == 0
    assert agent.said().count("WARNING") == 0
