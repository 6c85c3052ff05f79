"""Machines as processes: what a crash leaves, what failures are asked for, and that nothing stays behind."""

import asyncio
import os
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from spillover.model.pools import Offer, RefusalCause
from spillover.model.units import SECOND
from spillover.ports.provider import Created, Made, Order, Presence, ProviderOpening, Refused, Unknown
from spillover.providers.process import machines as process_machines
from spillover.providers.process.machines import JOIN, LOG, Machines, Record, marked
from spillover.providers.process.provider import ProcessForm, ProcessKind, ProcessProvider
from spillover.providers.process.starting import Started
from spillover.testing.provider_suite import OTHER, OWNER, ProviderSuite, an_opening
from tests.support.processes import alive, wait_until

run = asyncio.run
SUITE = ProviderSuite()
an_order = SUITE.an_order


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "machines"


def opened(folder: Path, form: ProcessForm | None = None) -> ProcessProvider:
    return ProcessKind().open(ProcessForm(boot="1m") if form is None else form, an_opening(folder))


def record_of(order: Order) -> Record:
    return Record(order.machine, order.owner, order.token, order.name, time.time_ns())


def running(folder: Path) -> list[int]:
    """All processes of the first machines in a folder, also of those whose own folder is gone."""
    folders = [folder / an_order(number).name for number in (1, 2)]
    return [pid for pids in marked(folders).values() for pid in pids]


def test_a_machine_that_was_recorded_and_not_started_is_listed_and_started_by_its_order(
    folder: Path,
) -> None:
    order, provider = an_order(), opened(folder)
    machines = Machines(folder)
    with machines.alone():
        machines.add(record_of(order), order.join)
    (listed,) = (run(provider.list())).machines
    assert (listed.presence, listed.machine, listed.owner) == (Presence.PENDING, order.machine, OWNER)
    assert not running(folder)
    assert run(provider.create(order)) == Made(order.name, listed.at)
    assert running(folder)
    assert not run(provider.destroy([order.name]))
    assert not running(folder)


def forker(pid: int) -> int:
    """The process from which the agent of a machine was forked."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert b"spillover.agent.forks" in words, "it was not forked"
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def leader(folder: Path, number: int) -> int:
    return int((folder / an_order(number).name / "pid").read_text())


def test_agents_are_forked_from_one_process_which_belongs_to_no_machine(folder: Path) -> None:
    provider = opened(folder)
    for number in (1, 2):
        assert isinstance(run(provider.create(an_order(number))), Made)
    first, second = leader(folder, 1), leader(folder, 2)
    assert running(folder) == [first, second]
    assert forker(first) == forker(second)
    assert not run(provider.destroy([an_order(1).name]))
    assert running(folder) == [second]
    assert isinstance(run(provider.create(an_order(3))), Made)
    assert forker(leader(folder, 3)) == forker(second), "the end of a machine ended what forks the others"
    assert not run(provider.destroy([an_order(number).name for number in (2, 3)]))
    run(provider.close())


def test_what_forks_agents_is_started_before_the_first_order_and_gone_when_its_provider_is_closed(
    folder: Path,
) -> None:
    provider = opened(folder)
    run(provider.prepare())
    run(provider.prepare())
    found = [int(each.name) for each in Path("/proc").glob("[0-9]*") if forks_in(int(each.name), folder)]
    assert len(found) == 1
    assert isinstance(run(provider.create(an_order())), Made)
    assert forker(leader(folder, 1)) == found[0]
    run(provider.close())
    wait_until(lambda: not alive(found[0]), "its end")
    assert not run(provider.destroy([an_order().name]))


def forks_in(pid: int, folder: Path) -> bool:
    """Whether a process forks the agents of machines in a folder, and is none of them."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return os.fsencode(folder) in words and os.getsid(pid) != pid
    except OSError:
        return False


def test_machines_go_on_without_the_process_that_forked_them_and_others_can_be_ordered(folder: Path) -> None:
    provider = opened(folder)
    run(provider.create(an_order(1)))
    before = forker(leader(folder, 1))
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: not alive(before), "its end")
    assert isinstance(run(provider.create(an_order(2))), Made)
    after = forker(leader(folder, 2))
    assert running(folder) == [leader(folder, 1), leader(folder, 2)]
    run(provider.close())
    wait_until(lambda: not alive(after), "the end of what forks, with its provider")
    assert running(folder) == [leader(folder, 1), leader(folder, 2)]
    assert not run(provider.destroy([an_order(number).name for number in (1, 2)]))


def test_a_forked_agent_that_cannot_start_says_why_in_the_log_of_its_machine(folder: Path) -> None:
    provider = ProcessKind().open(ProcessForm(), replace(an_opening(folder), agent_options=("--wrong",)))
    run(provider.create(an_order()))
    log = folder / an_order().name / LOG
    wait_until(lambda: "unrecognized arguments: --wrong" in log.read_text(), "the agent's complaint")
    wait_until(lambda: run(provider.list()).machines[0].presence is Presence.GONE, "its end")
    assert not run(provider.destroy([an_order().name]))
    run(provider.close())


def test_a_machine_that_was_recorded_and_not_started_can_be_destroyed(folder: Path) -> None:
    order, provider = an_order(), opened(folder)
    machines = Machines(folder)
    with machines.alone():
        machines.add(record_of(order), order.join)
    assert not run(provider.destroy([order.name]))
    assert not (run(provider.list())).machines


def test_what_a_crash_leaves_of_a_record_is_no_machine(folder: Path) -> None:
    provider = opened(folder)
    (folder / ".new-half").mkdir(parents=True)
    assert not (run(provider.list())).machines
    assert not run(provider.destroy([".new-half", "ended", "../machines", "", "a\0b"]))
    assert (folder / ".new-half").is_dir()


def test_only_its_user_can_read_what_a_machine_joins_with(folder: Path) -> None:
    order, provider = an_order(), opened(folder)
    run(provider.create(order))
    path = folder / order.name / JOIN
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    assert msgspec.json.decode(path.read_bytes(), type=type(order.join)) == order.join
    run(provider.destroy([order.name]))
    assert not path.parent.exists()


def test_a_machine_that_ended_by_itself_is_gone_and_its_order_makes_no_other(folder: Path) -> None:
    order, provider = an_order(), opened(folder)
    run(provider.create(order))

    def killed() -> bool:
        for pid in (left := running(folder)):
            os.kill(pid, signal.SIGKILL)
        return not left

    wait_until(killed, "the end of its processes")
    (listed,) = (run(provider.list())).machines
    assert listed.presence is Presence.GONE
    assert listed.reason.startswith("its process ended; see ")
    assert isinstance(run(provider.create(order)), Made)
    assert not running(folder)
    assert not run(provider.destroy([order.name]))
    assert not (run(provider.list())).machines


def test_a_machine_that_does_not_stop_is_killed_with_all_that_it_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_machines, "PATIENCE", 0.2)
    order, machines = an_order(), Machines(folder)
    with machines.alone():
        machines.add(record_of(order), order.join)
    deaf = "trap '' TERM; setsid sleep 1000 & echo started; while :; do sleep 0.1; done"
    machines.start(order.name, Started(("sh", "-c", deaf, "sh"), 0.0, dict(os.environ)))
    log = folder / order.name / LOG
    wait_until(lambda: b"started" in log.read_bytes(), "its start")
    assert machines.end([order.name]) == {}
    assert not running(folder)
    assert (folder / "ended" / order.name).read_bytes() == b"started\n"


def test_a_name_stays_taken_for_a_day_after_its_machine(folder: Path) -> None:
    order, provider = an_order(), opened(folder)
    run(provider.create(order))
    run(provider.destroy([order.name]))
    kept = folder / "ended" / order.name
    os.utime(kept, (0, time.time() - process_machines.KEEP + 60))
    run(provider.list())
    assert kept.exists()
    os.utime(kept, (0, time.time() - process_machines.KEEP - 60))
    run(provider.list())
    assert not kept.exists()


def test_a_machine_that_ended_by_itself_is_listed_for_a_day(folder: Path) -> None:
    order, provider, machines = an_order(), opened(folder), Machines(folder)
    made = time.time_ns() - int(process_machines.KEEP + 60) * SECOND
    with machines.alone():
        machines.add(replace(record_of(order), at=made), order.join)
    machines.start(order.name, Started(("true",), 0.0, dict(os.environ)))
    wait_until(lambda: not machines.runs(order.name), "its end")
    assert [each.presence for each in (run(provider.list())).machines] == [Presence.GONE]
    assert not (run(provider.list())).machines


def test_two_orders_with_one_name_are_not_mixed_up(folder: Path) -> None:
    order, provider = an_order(), opened(folder)
    run(provider.create(order))
    answer = run(provider.create(replace(order, token="another")))
    assert answer == Refused(RefusalCause.INVALID, f"another machine has the name {order.name}")
    run(provider.destroy([order.name]))


def test_capacity_counts_machines_that_are_there(folder: Path) -> None:
    provider = opened(folder, ProcessForm(boot="1m", capacity=1))
    first, second = an_order(1), an_order(2)
    assert isinstance(run(provider.create(first)), Made)
    refused = run(provider.create(second))
    assert refused == Refused(RefusalCause.CAPACITY, "the option `capacity` allows 1 machines")
    assert isinstance(run(provider.create(first)), Made), "it is there already"
    run(provider.destroy([first.name]))
    assert isinstance(run(provider.create(second)), Made)
    run(provider.destroy([second.name]))


def test_capacity_holds_for_orders_at_the_same_time(folder: Path) -> None:
    providers = [opened(folder, ProcessForm(boot="1m", capacity=2)) for _ in range(6)]

    async def all_of_them() -> list[Created]:
        return await asyncio.gather(*[each.create(an_order(number)) for number, each in enumerate(providers)])

    answers = run(all_of_them())
    made = [each.id for each in answers if isinstance(each, Made)]
    assert not run(providers[0].destroy(made))
    assert len(made) == 2
    assert all(isinstance(each, Made | Refused) for each in answers)


def test_machines_of_another_owner_are_not_listed(folder: Path) -> None:
    ours, theirs = opened(folder), ProcessKind().open(ProcessForm(boot="1m"), an_opening(folder, OTHER))
    run(theirs.create(an_order(owner=OTHER)))
    assert not run(ours.list()).machines
    assert len(run(theirs.list()).machines) == 1
    assert not run(theirs.destroy([an_order(owner=OTHER).name]))


def test_offers_are_refused_by_type_zone_and_market(folder: Path) -> None:
    form = ProcessForm(boot="1m", refuse={"big/*": "quota", "*/a/spot": "capacity"})
    provider = opened(folder, form)
    small = SUITE.offer
    for offer, cause in (
        (replace(small, type="big"), RefusalCause.QUOTA),
        (replace(small, zone="a", spot=True), RefusalCause.CAPACITY),
    ):
        answer = run(provider.create(an_order(offer=offer)))
        assert isinstance(answer, Refused)
        assert answer.cause is cause
    assert isinstance(run(provider.create(an_order(offer=replace(small, zone="a")))), Made)
    run(provider.destroy([an_order().name]))


def test_a_machine_that_is_to_fail_runs_and_never_starts_an_agent(folder: Path) -> None:
    provider = opened(folder, ProcessForm(fail=[2]))
    order = an_order(2)
    run(provider.create(order))
    (listed,) = (run(provider.list())).machines
    assert listed.presence is Presence.RUNNING
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in running(folder)]
    assert not [each for each in commands if b"spillover.agent" in each]
    run(provider.destroy([order.name]))


def test_which_machines_fail_follows_from_the_seed(folder: Path) -> None:
    def failing(seed: int) -> set[int]:
        provider = opened(folder, ProcessForm(fail=0.3, seed=seed))
        return {number for number in range(200) if provider._hit("fail", f"cloud-{number}")}

    assert failing(1) == failing(1) != failing(2)
    assert 40 < len(failing(1)) < 80
    assert not [n for n in range(50) if opened(folder)._hit("fail", f"cloud-{n}")]


def test_an_answer_is_lost_once_and_its_machine_is_there(folder: Path) -> None:
    provider = opened(folder, ProcessForm(boot="1m", lose=[1]))
    assert isinstance(run(provider.create(an_order())), Unknown)
    assert len((run(provider.list())).machines) == 1
    assert isinstance(run(provider.create(an_order())), Made)
    run(provider.destroy([an_order().name]))


def test_a_machine_that_cannot_start_is_not_there(folder: Path) -> None:
    folder.write_text("a file in the way")
    answer = run(opened(folder).create(an_order()))
    assert type(answer).__name__ == "NotNow"


def test_options_that_are_not_durations_are_named() -> None:
    kind = ProcessKind()
    flaws = kind.check(ProcessForm(boot="soon", spot_for="0s"), [Offer("a", SUITE.offer.resources, 1)])
    assert [flaw.path for flaw in flaws] == [("boot",), ("spot_for",)]
    assert not kind.check(ProcessForm(boot="2s", spot_for="1h"), [])


def test_an_agent_gets_what_its_offer_says(folder: Path) -> None:
    offer = replace(SUITE.offer, words=("gpu:a100",), labels={"rack": "r1"})
    opening = ProviderOpening(an_order().join.cluster, OWNER, folder, agent_options=("--isolation", "none"))
    words = ProcessProvider(ProcessForm(), opening)._how(an_order(offer=offer)).words
    line = subprocess.list2cmdline(words)
    assert line == "--isolation none --cpu 1 --memory 1Gi --gpu 0 --offer gpu:a100 --label rack=r1"
