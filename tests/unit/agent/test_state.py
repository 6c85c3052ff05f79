"""Each rule of an agent's life, on a virtual clock."""

from collections.abc import Iterable

from msgspec.structs import replace

from spillover.agent.leases.state import FAREWELL_GRACE, AgentState
from spillover.agent.leases.values import (
    Answered,
    Exit,
    ForgetResult,
    Grant,
    Instruction,
    Notify,
    Phase,
    Prefetch,
    Reconnect,
    Renewal,
    Signal,
    StartTask,
    Task,
    TaskResult,
    Welcome,
)
from spillover.core.events import Lease, Usage
from spillover.core.proposals import Outcome, Verdict
from spillover.model.files import File
from spillover.model.ids import JobId
from spillover.model.job import Shell
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND

HEARTBEAT = 2 * SECOND
SHORT = 30 * SECOND


def a_lease(job: str = "a", attempt: int = 1, seq: int = 1) -> Lease:
    return Lease(JobId(job), attempt, seq)


def a_task(
    cpu: int = 1000, walltime: int = 0, grace: int = 10 * SECOND, lost_after: int = 5 * MINUTE
) -> Task:
    return Task(Shell("true"), Resources(cpu), walltime=walltime, grace=grace, lost_after=lost_after)


class Life:
    """An agent's state with a clock, and a server that mostly agrees."""

    def __init__(self, cpu: int = 2000, unanswered: Iterable[TaskResult] = ()) -> None:
        self.now = 1000 * SECOND
        self.state = AgentState(Resources(cpu), unanswered)
        self.incarnation = 0

    def passes(self, nanoseconds: int) -> list[Instruction]:
        self.now += nanoseconds
        return self.state.tick(self.now)

    def registers(self, keep: Iterable[Lease] | None = None, epoch: int = 1) -> list[Instruction]:
        held, out = self.state.register(self.now)
        self.incarnation += 1
        kept = frozenset(lease for lease, _ in held) if keep is None else frozenset(keep)
        welcome = Welcome(epoch, self.incarnation, kept, HEARTBEAT, SHORT)
        return out + self.state.registered(self.now, self.now, welcome)

    def gets(
        self, *leases: Lease, task: Task | None = None, epoch: int = 1, stream: int | None = None
    ) -> list[Instruction]:
        grants = [Grant(lease, task or a_task()) for lease in leases]
        return self.state.granted(self.now, stream or self.incarnation, epoch, grants)

    def beats(self, renewal: Renewal | None = None) -> list[Instruction]:
        return self.state.renewed(self.now, self.now, renewal or Renewal(1))

    def starts(self, lease: Lease) -> list[Instruction]:
        return self.state.started(self.now, lease, self.now)

    def ends(self, lease: Lease, code: int = 0) -> list[Instruction]:
        return self.state.ended(self.now, lease, Exit(self.now, code=code, usage=Usage(ran=SECOND)))

    def reports(self, verdict: Verdict = Verdict.ACCEPTED, *, fenced: bool = False) -> list[Instruction]:
        report, out = self.state.report(self.now)
        assert report is not None
        answer = Answered(
            1,
            fenced,
            tuple((result.lease, verdict) for result in report.results),
            tuple(lease for lease, _ in report.started),
        )
        return out + self.state.reported(self.now, answer)

    def outcome(self, lease: Lease) -> Outcome:
        return self.state.results[lease].outcome

    def released(self) -> tuple[Lease, ...]:
        report, _ = self.state.report(self.now)
        self.state.unreported()
        return report.released if report else ()


def an_agent(cpu: int = 2000) -> Life:
    life = Life(cpu)
    assert life.registers() == []
    return life


def an_agent_running(lease: Lease, task: Task | None = None, *, acknowledged: bool = True) -> Life:
    life = an_agent()
    assert life.gets(lease, task=task) == [StartTask(lease, task or a_task())]
    life.starts(lease)
    if acknowledged:
        assert life.reports() == []
    return life


A, B, C, D = (a_lease(name) for name in "abcd")


# --- capacity


def test_leases_start_in_order_of_arrival_while_there_is_room() -> None:
    life = an_agent(cpu=2000)
    assert life.gets(A, B, C) == [StartTask(A, a_task()), StartTask(B, a_task())]
    assert list(life.state.waiting) == [C]
    assert life.ends(B) == [StartTask(C, a_task())]


def test_a_task_gets_the_signal_that_it_wants_before_its_walltime_and_goes_on() -> None:
    task = replace(a_task(walltime=MINUTE), signal="USR1", signal_before=20 * SECOND)
    life = an_agent_running(A, task)
    assert life.passes(39 * SECOND) == []
    assert life.state.wake() == life.now + SECOND
    assert life.passes(SECOND) == [Notify(A)]
    assert life.passes(19 * SECOND) == []
    assert life.passes(SECOND) == [Signal(A, kill=False)]


def test_a_task_that_is_being_stopped_gets_no_other_signal() -> None:
    task = replace(a_task(walltime=MINUTE), signal="USR1", signal_before=20 * SECOND, grace=50 * SECOND)
    life = an_agent_running(A, task)
    life.passes(39 * SECOND)
    assert life.beats(Renewal(1, stops=((A, False),))) == [Signal(A, kill=False)]
    assert life.passes(SECOND) == []


def test_a_small_lease_does_not_pass_a_large_one() -> None:
    life = an_agent(cpu=2000)
    life.gets(A)
    assert life.gets(B, task=a_task(cpu=2000)) == []
    assert life.gets(C) == []
    assert life.ends(A) == [StartTask(B, a_task(cpu=2000))]


def test_a_lease_that_never_fits_is_answered_and_blocks_nobody() -> None:
    life = an_agent(cpu=2000)
    assert life.gets(A, task=a_task(cpu=3000)) == []
    assert life.outcome(A) is Outcome.NOT_STARTED
    assert "needs 3 CPU, but this agent has 2 CPU" in life.state.results[A].message
    assert life.gets(B) == [StartTask(B, a_task())]


def test_memory_and_gpus_count_as_well() -> None:
    life = Life()
    life.state = AgentState(Resources(8000, 100, 1))
    life.registers()
    one = Task(Shell("true"), Resources(1000, 10, 1))
    assert life.gets(A, B, task=one) == [StartTask(A, one)]


def test_a_lease_that_comes_twice_starts_once() -> None:
    life = an_agent()
    assert life.gets(A) == [StartTask(A, a_task())]
    assert life.gets(A) == []
    life.ends(A)
    assert life.gets(A) == []


def test_a_newer_lease_of_a_task_kills_the_older_and_starts_after_its_end() -> None:
    life = an_agent_running(A)
    newer = a_lease("a", seq=2)
    assert life.gets(newer) == [Signal(A, kill=True)]
    assert life.ends(A) == [StartTask(newer, a_task())]
    assert life.outcome(A) is Outcome.LOST


# --- registration and epochs


def test_a_registration_names_waiting_running_and_ended_leases() -> None:
    life = an_agent(cpu=1000)
    life.gets(A)
    life.ends(A)
    life.gets(B, C)
    held, _ = life.state.register(life.now)
    assert dict(held) == {C: Phase.WAITING, B: Phase.RUNNING, A: Phase.ENDED}


def test_from_sending_register_grants_of_the_old_stream_are_ignored() -> None:
    life = an_agent()
    old = life.incarnation
    life.state.register(life.now)
    assert life.gets(A, stream=old) == []
    life.registers()
    assert life.gets(A, stream=old) == []
    assert not life.state.waiting
    assert life.gets(A) == [StartTask(A, a_task())]


def test_named_leases_that_are_not_kept_are_dropped_or_killed() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B, C)
    life.starts(A)
    assert life.registers(keep=[C]) == [Signal(A, kill=True)]
    assert list(life.state.waiting) == [C]
    assert life.ends(A) == [StartTask(C, a_task())]
    assert life.outcome(A) is Outcome.STOPPED


def test_an_unanswered_result_is_told_even_if_its_lease_is_not_kept() -> None:
    life = an_agent()
    life.gets(A)
    life.ends(A)
    assert life.registers(keep=[]) == []
    assert life.reports(Verdict.FENCED) == [ForgetResult(A, Verdict.FENCED)]
    assert not life.state.news()


def test_results_of_an_earlier_life_are_named_and_told() -> None:
    life = Life(unanswered=[TaskResult(A, Outcome.LOST, 0)])
    held, _ = life.state.register(life.now)
    assert held == ((A, Phase.ENDED),)
    life.registers()
    assert life.reports() == [ForgetResult(A, Verdict.ACCEPTED)]


def test_a_lower_epoch_is_refused_wherever_it_shows() -> None:
    life = an_agent_running(A)
    life.beats(Renewal(7))
    stale = [Reconnect("rejected a server of epoch 6; epoch 7 has started")]
    assert life.gets(B, epoch=6) == stale
    assert life.beats(Renewal(6, fenced=True, stops=((A, True),))) == stale
    assert life.registers(epoch=6) == stale
    assert list(life.state.running) == [A]
    assert life.state.incarnation is None


def test_an_answer_to_a_report_from_a_lower_epoch_changes_nothing() -> None:
    life = an_agent()
    life.gets(A)
    life.ends(A)
    life.beats(Renewal(7))
    life.state.report(life.now)
    out = life.state.reported(
        life.now, Answered(6, fenced=False, verdicts=((A, Verdict.ACCEPTED),), started=())
    )
    assert [type(instruction) for instruction in out] == [Reconnect]
    assert A in life.state.results


# --- fencing


def test_a_fenced_agent_kills_its_tasks_drops_what_waits_and_registers_anew() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    life.starts(A)
    out = life.beats(Renewal(1, fenced=True))
    assert out == [Signal(A, kill=True), Reconnect("fenced by the server", fenced=True)]
    assert not life.state.waiting
    life.ends(A)
    assert life.outcome(A) is Outcome.LOST


def test_a_fenced_report_does_the_same_after_its_results_are_answered() -> None:
    life = an_agent_running(A)
    life.gets(B)
    life.ends(B)
    out = life.reports(fenced=True)
    assert out == [
        ForgetResult(B, Verdict.ACCEPTED),
        Signal(A, kill=True),
        Reconnect("fenced by the server", fenced=True),
    ]


def test_a_fenced_result_drops_that_result_only() -> None:
    life = an_agent_running(A)
    life.gets(B)
    life.ends(B)
    assert life.reports(Verdict.FENCED) == [ForgetResult(B, Verdict.FENCED)]
    assert list(life.state.running) == [A]


# --- terms


def test_without_renewal_a_waiting_lease_is_dropped_at_the_short_term_less_a_heartbeat() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    life.starts(A)
    life.reports()
    assert life.passes(SHORT - HEARTBEAT - 1) == []
    assert list(life.state.waiting) == [B]
    assert life.passes(1) == []
    assert not life.state.waiting
    assert life.released() == (B,)


def test_a_start_that_is_not_acknowledged_dies_at_the_short_term() -> None:
    life = an_agent_running(A, acknowledged=False)
    assert life.passes(SHORT - HEARTBEAT - 1) == []
    assert life.passes(1) == [Signal(A, kill=True)]
    life.ends(A)
    assert life.outcome(A) is Outcome.LOST


def test_an_acknowledged_task_dies_at_lost_after_less_a_heartbeat() -> None:
    life = an_agent_running(A)
    assert life.passes(5 * MINUTE - HEARTBEAT - 1) == []
    assert life.passes(1) == [Signal(A, kill=True)]
    life.ends(A)
    assert life.outcome(A) is Outcome.LOST


def test_terms_count_from_sending_the_last_acknowledged_heartbeat() -> None:
    life = an_agent_running(A, acknowledged=False)
    sent = life.now
    life.now += 10 * SECOND
    life.state.renewed(life.now, sent, Renewal(1))
    life.now = sent
    assert life.passes(SHORT - HEARTBEAT - 1) == []
    assert life.passes(1) == [Signal(A, kill=True)]


def test_a_heartbeat_renews_all_leases() -> None:
    life = an_agent_running(A, acknowledged=False)
    for _ in range(20):
        assert life.passes(10 * SECOND) == []
        assert life.beats() == []
    assert list(life.state.running) == [A]


def test_an_agent_that_was_stopped_past_its_terms_starts_nothing_when_it_wakes() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    life.starts(A)
    life.now += 10 * MINUTE
    assert life.gets(C) == [Signal(A, kill=True)]
    assert life.ends(A) == []
    assert set(life.released()) == {B, C}


def test_a_late_answer_to_an_early_heartbeat_revives_nothing() -> None:
    life = an_agent_running(A, acknowledged=False)
    sent = life.now
    life.now += MINUTE
    assert life.state.renewed(life.now, sent, Renewal(1)) == [Signal(A, kill=True)]


def test_after_the_outage_the_next_registration_starts_terms_anew() -> None:
    life = an_agent_running(A)
    life.passes(MINUTE)
    assert life.registers(epoch=2) == []
    assert life.passes(5 * MINUTE - HEARTBEAT - 1) == []
    assert life.passes(1) == [Signal(A, kill=True)]


def test_it_asks_to_be_woken_for_whatever_is_due_first() -> None:
    life = an_agent()
    assert life.state.wake() is None
    life.gets(A, task=a_task(walltime=SECOND))
    assert life.state.wake() == life.now + SHORT - HEARTBEAT
    life.starts(A)
    assert life.state.wake() == life.now + SECOND


# --- stopping


def limits(lease: Lease, walltime: int) -> Renewal:
    return Renewal(1, walltimes=((lease, walltime),))


def test_a_longer_walltime_counts_from_the_start_of_a_task_and_may_be_repeated() -> None:
    life = an_agent_running(A, a_task(walltime=20 * SECOND))
    life.passes(15 * SECOND)
    for _ in range(3):
        assert life.beats(limits(A, 60 * SECOND)) == []
    assert life.passes(44 * SECOND) == []
    assert life.passes(SECOND) == [Signal(A, kill=False)]
    assert life.beats(limits(A, 90 * SECOND)) == []


def test_a_shorter_walltime_ends_a_task_sooner_and_at_once_if_it_is_over() -> None:
    life = an_agent_running(A, a_task(walltime=MINUTE))
    assert life.beats(limits(A, 30 * SECOND)) == []
    assert life.passes(29 * SECOND) == []
    assert life.passes(SECOND) == [Signal(A, kill=False)]
    life = an_agent_running(B)
    life.passes(20 * SECOND)
    life.beats(limits(B, 10 * SECOND))
    assert life.passes(0) == [Signal(B, kill=False)]


def test_a_task_without_a_walltime_any_more_goes_on() -> None:
    life = an_agent_running(A, a_task(walltime=20 * SECOND))
    assert life.beats(limits(A, 0)) == []
    assert life.passes(25 * SECOND) == []
    assert life.beats(limits(C, 5)) == []


def test_a_signal_before_a_walltime_that_moved_comes_once_for_each() -> None:
    task = replace(a_task(walltime=MINUTE), signal="USR1", signal_before=20 * SECOND)
    life = an_agent_running(A, task)
    assert life.passes(10 * SECOND) == []
    assert life.beats(limits(A, 35 * SECOND)) == []
    assert life.passes(5 * SECOND) == [Notify(A)]
    assert life.beats(limits(A, MINUTE)) == []
    assert life.passes(5 * SECOND) == []
    assert life.passes(5 * SECOND) == []
    life.beats()
    assert life.passes(15 * SECOND) == [Notify(A)]


def test_at_its_walltime_a_task_is_terminated_and_after_its_grace_killed() -> None:
    life = an_agent_running(A, a_task(walltime=20 * SECOND, grace=3 * SECOND))
    assert life.passes(20 * SECOND - 1) == []
    assert life.passes(1) == [Signal(A, kill=False)]
    assert life.passes(3 * SECOND - 1) == []
    assert life.passes(1) == [Signal(A, kill=True)]
    life.ends(A)
    assert life.outcome(A) is Outcome.WALLTIME


def test_a_stop_terminates_and_kills_after_the_grace() -> None:
    life = an_agent_running(A)
    assert life.beats(Renewal(1, stops=((A, False),))) == [Signal(A, kill=False)]
    assert life.beats(Renewal(1, stops=((A, False),))) == []
    assert life.passes(10 * SECOND) == [Signal(A, kill=True)]
    life.ends(A)
    assert life.outcome(A) is Outcome.STOPPED


def test_a_stop_that_kills_gives_no_grace_even_after_one_that_did() -> None:
    life = an_agent_running(A)
    life.beats(Renewal(1, stops=((A, False),)))
    assert life.beats(Renewal(1, stops=((A, True),))) == [Signal(A, kill=True)]


def test_without_grace_a_task_is_killed_at_once() -> None:
    life = an_agent_running(A, a_task(grace=0))
    assert life.beats(Renewal(1, stops=((A, False),))) == [Signal(A, kill=True)]


def test_a_stopped_lease_that_waits_ends_without_a_start() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    assert life.beats(Renewal(1, stops=((B, False),))) == []
    assert life.outcome(B) is Outcome.STOPPED
    assert life.ends(A) == []


def test_revoked_leases_are_handed_back_unless_they_started() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    assert life.beats(Renewal(1, revoked=(A, B))) == []
    assert life.released() == (B,)
    assert list(life.state.running) == [A]


def test_a_drained_agent_hands_back_what_waits_and_takes_nothing_more() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    life.beats(Renewal(1, drain=True))
    assert life.gets(C) == []
    assert life.released() == (B, C)
    assert life.ends(A) == []


def test_an_agent_that_leaves_hands_back_terminates_and_soon_kills() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    assert life.state.leave(life.now) == [Signal(A, kill=False)]
    assert life.released() == (B,)
    assert life.passes(FAREWELL_GRACE) == [Signal(A, kill=True)]
    assert life.ends(A) == []
    assert life.outcome(A) is Outcome.STOPPED


def test_an_agent_that_drains_hands_back_and_lets_what_runs_end() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    assert life.state.drain(life.now) == []
    assert life.released() == (B,)
    report, _out = life.state.report(life.now)
    assert report is not None
    assert report.leaving
    life.state.unreported()
    assert life.gets(C) == []
    assert life.released() == (B, C)
    assert life.passes(FAREWELL_GRACE) == []
    assert life.ends(A) == []
    assert life.outcome(A) is Outcome.EXITED


def test_what_does_not_end_while_an_agent_drains_is_terminated_when_it_leaves() -> None:
    life = an_agent(cpu=1000)
    life.gets(A)
    assert life.state.drain(life.now) == []
    assert life.state.leave(life.now) == [Signal(A, kill=False)]
    assert life.passes(FAREWELL_GRACE) == [Signal(A, kill=True)]
    assert life.ends(A) == []
    assert life.outcome(A) is Outcome.STOPPED


def test_an_agent_that_leaves_says_so_under_every_registration_until_it_is_heard() -> None:
    life = an_agent()
    life.state.leave(life.now)
    for _ in range(2):  # the first one is not answered
        assert life.state.news()
        report, _out = life.state.report(life.now)
        assert report is not None
        assert report.leaving
        life.state.unreported()
    life.reports()
    assert not life.state.news()
    assert life.state.report(life.now)[0] is None
    life.registers()
    assert life.state.news()


def test_timers_of_tasks_that_ended_do_not_pile_up() -> None:
    life = an_agent()
    for number in range(5_000):
        lease = a_lease(f"job{number}")
        life.gets(lease, task=a_task(walltime=60 * MINUTE))
        life.starts(lease)
        life.ends(lease)
    assert len(life.state.running.timers) < 2_000


# --- reports


def test_everything_ready_goes_into_one_report_and_one_report_is_under_way() -> None:
    life = an_agent(cpu=3000)
    life.gets(A, B)
    life.starts(A)
    life.ends(B, code=3)
    report, _ = life.state.report(life.now)
    assert report is not None
    assert [lease for lease, _ in report.started] == [A]
    assert [(result.lease, result.exit_code) for result in report.results] == [(B, 3)]
    assert life.state.report(life.now) == (None, [])


def test_an_agent_wants_more_to_do_when_half_of_what_it_was_given_is_done() -> None:
    life = an_agent(cpu=1000)
    assert life.state.must_report_now()
    life.gets(A, B, C, D)
    assert not life.state.must_report_now()
    life.ends(A)
    assert not life.state.must_report_now()
    life.ends(B)
    assert life.state.must_report_now()


def test_a_result_takes_the_place_of_its_start() -> None:
    life = an_agent()
    life.gets(A)
    life.starts(A)
    life.ends(A)
    report, _ = life.state.report(life.now)
    assert report is not None
    assert not report.started


def test_a_report_without_an_answer_is_ready_again() -> None:
    life = an_agent()
    life.gets(A, B)
    life.starts(A)
    life.ends(B)
    first, _ = life.state.report(life.now)
    life.state.unreported()
    assert life.state.report(life.now)[0] == first


def test_a_start_that_was_not_acknowledged_is_told_again_after_the_next_heartbeat() -> None:
    life = an_agent()
    life.gets(A)
    life.starts(A)
    life.state.report(life.now)
    life.state.reported(life.now, Answered(1, fenced=False, verdicts=(), started=()))
    assert life.state.report(life.now)[0] is None
    life.beats()
    report, _ = life.state.report(life.now)
    assert report is not None
    assert [lease for lease, _ in report.started] == [A]


def test_a_task_without_a_process_was_not_started() -> None:
    life = an_agent()
    life.gets(A)
    life.state.ended(life.now, A, Exit(life.now, spawned=False, message="workdir '/x': No such file"))
    assert life.outcome(A) is Outcome.NOT_STARTED
    assert life.state.results[A].message == "workdir '/x': No such file"


def test_a_task_whose_nursery_died_is_lost_and_the_next_starts() -> None:
    life = an_agent(cpu=1000)
    life.gets(A, B)
    life.starts(A)
    assert life.state.ended(life.now, A, Exit(life.now, lost=True)) == [StartTask(B, a_task())]
    assert life.outcome(A) is Outcome.LOST


def with_files(task: Task) -> Task:
    return replace(task, inputs=(File("data", "0" * 64, 1),))


def test_inputs_of_what_has_to_wait_are_fetched_ahead() -> None:
    life = Life(cpu=1000)
    life.registers()
    grants = [Grant(a_lease(job), with_files(a_task())) for job in "abc"]
    out = life.state.granted(life.now, life.incarnation, 1, [*grants, Grant(a_lease("plain"), a_task())])
    assert [type(each) for each in out] == [StartTask, Prefetch, Prefetch]


def test_a_task_whose_files_move_is_not_timed() -> None:
    life = Life()
    life.registers()
    life.state.granted(life.now, life.incarnation, 1, [Grant(a_lease("a"), a_task(walltime=SECOND))])
    life.state.started(life.now, a_lease("a"), life.now)
    life.state.moving(a_lease("a"), moving=True)
    assert life.passes(2 * SECOND) == []
    life.state.ended(life.now, a_lease("a"), Exit(life.now, code=0, outputs="1" * 64))
    result = life.state.results[a_lease("a")]
    assert (result.outcome, result.exit_code, result.outputs) == (Outcome.EXITED, 0, "1" * 64)


def test_a_lease_that_ran_out_while_inputs_came_is_given_back_unharmed() -> None:
    life = Life()
    life.registers()
    life.state.granted(life.now, life.incarnation, 1, [Grant(a_lease("a"), with_files(a_task()))])
    life.state.moving(a_lease("a"), moving=True)
    assert life.passes(SHORT) == [Signal(a_lease("a"), kill=True)]
    life.state.ended(
        life.now, a_lease("a"), Exit(life.now, spawned=False, message="stopped before it started")
    )
    assert life.state.results == {}
    life.registers(keep=())
    report, _ = life.state.report(life.now)
    assert report is not None
    assert report.released == (a_lease("a"),)


def test_outputs_that_could_not_be_kept_are_an_outcome_of_their_own() -> None:
    life = Life()
    life.registers()
    life.state.granted(life.now, life.incarnation, 1, [Grant(a_lease("a"), a_task())])
    life.state.ended(life.now, a_lease("a"), Exit(life.now, code=0, unkept=True, message="big is too large"))
    result = life.state.results[a_lease("a")]
    assert (result.outcome, result.message) == (Outcome.UNKEPT, "big is too large")


def test_what_cannot_be_told_now_is_no_news() -> None:
    life = an_agent()
    life.gets(A, B, C)
    life.beats(Renewal(1, fenced=True))
    assert not life.state.news(), "it would be asked for a report again and again, without one"
    life.registers(keep=[])
    assert life.state.news()
    assert life.state.report(life.now)[0] is not None
    assert not life.state.news()


def test_a_start_that_is_acknowledged_does_not_outlast_a_shorter_term() -> None:
    life = an_agent()
    life.gets(A, task=a_task(lost_after=3 * HEARTBEAT))
    life.starts(A)
    life.beats()
    life.reports()
    assert life.state.wake() == life.now + 2 * HEARTBEAT
    assert life.passes(2 * HEARTBEAT) == [Signal(A, kill=True)]
    wake = life.state.wake()
    assert wake is None or wake > life.now


def test_a_lease_that_would_be_killed_at_once_is_handed_back_instead() -> None:
    life = an_agent()
    life.passes(2 * HEARTBEAT)
    assert life.gets(A, task=a_task(lost_after=3 * HEARTBEAT)) == []
    report, _ = life.state.report(life.now)
    assert report is not None
    assert report.released == (A,)


def uploading(life: Life) -> None:
    """The process of task a has exited with 0, and its outputs are on their way."""
    life.state.moving(A, moving=True)
    life.state.exited(A, Exit(life.now, code=0, usage=Usage(ran=SECOND)))


def overdue(lease: Lease) -> Renewal:
    return Renewal(1, stops=((lease, False),), overdue=frozenset({lease}))


def test_a_task_that_exited_before_its_walltime_or_deadline_may_bring_its_files_away_after_it() -> None:
    life = an_agent_running(A, a_task(walltime=20 * SECOND))
    life.now += 19 * SECOND
    ended = life.now
    uploading(life)
    for _ in range(30):
        life.now += SECOND
        assert life.beats(overdue(A)) == []
        assert life.passes(0) == []
    life.state.ended(life.now, A, Exit(ended, code=0, usage=Usage(ran=SECOND), outputs="1" * 64))
    result = life.state.results[A]
    assert (result.outcome, result.exit_code, result.message) == (Outcome.EXITED, 0, "")


def test_a_walltime_that_rang_before_the_exit_was_seen_is_taken_back() -> None:
    life = an_agent_running(A, a_task(walltime=20 * SECOND))
    exited = life.now + 20 * SECOND - 1
    assert life.passes(20 * SECOND) == [Signal(A, kill=False)]
    life.state.moving(A, moving=True)
    life.state.exited(A, Exit(exited, code=0))
    assert life.passes(11 * SECOND) == []  # nobody kills what brings its files away
    life.state.ended(life.now, A, Exit(exited, code=0))
    assert life.outcome(A) is Outcome.EXITED


def test_a_task_that_exits_with_0_because_its_walltime_is_over_has_reached_it() -> None:
    life = an_agent_running(A, a_task(walltime=20 * SECOND))
    life.passes(20 * SECOND)
    life.now += SECOND
    life.ends(A)
    assert life.outcome(A) is Outcome.WALLTIME


def test_a_cancel_ends_what_brings_its_files_away_after_its_grace() -> None:
    life = an_agent_running(A, a_task(walltime=20 * SECOND, grace=3 * SECOND))
    uploading(life)
    life.beats(overdue(A))
    assert life.beats(Renewal(1, stops=((A, False),))) == [Signal(A, kill=False)]
    assert life.passes(3 * SECOND) == [Signal(A, kill=True)]
    life.state.ended(life.now, A, Exit(life.now - 3 * SECOND, code=0, unkept=True))
    assert life.outcome(A) is Outcome.STOPPED


def test_a_machine_that_is_taken_back_ends_its_tasks_with_their_grace_and_takes_no_more() -> None:
    life = Life()
    life.registers()
    running, waiting = a_lease("a"), a_lease("b")
    life.gets(running, task=a_task(cpu=2000))
    life.state.started(life.now, running, life.now)
    life.gets(waiting, task=a_task(cpu=2000))
    out = life.state.interrupt(life.now, 5, 120 * SECOND)
    assert out == [Signal(running, kill=False)]
    life.gets(a_lease("c"))
    report, _ = life.state.report(life.now)
    assert report is not None
    assert (report.taken_back, report.leaving) == (5, True)
    assert set(report.released) == {waiting, a_lease("c")}
    assert life.passes(9 * SECOND) == []
    assert life.passes(2 * SECOND) == [Signal(running, kill=True)]


def test_a_task_is_killed_in_time_to_report_its_end_before_the_machine_goes() -> None:
    life = Life()
    life.registers()
    life.gets(a_lease(), task=a_task(grace=10 * MINUTE))
    life.state.started(life.now, a_lease(), life.now)
    assert life.state.interrupt(life.now, 5, 30 * SECOND) == [Signal(a_lease(), kill=False)]
    assert life.passes(24 * SECOND) == []
    assert life.passes(SECOND) == [Signal(a_lease(), kill=True)]


def test_a_notice_is_reported_until_it_is_answered_and_again_after_each_registration() -> None:
    life = Life()
    life.registers()
    life.state.leave(life.now)
    told, _ = life.state.report(life.now)
    assert told is not None
    life.state.interrupt(life.now, 5, MINUTE)  # while the report that it leaves is under way
    life.state.reported(life.now, Answered(1, False, (), ()))
    for _ in range(2):
        report, _ = life.state.report(life.now)
        assert report is not None
        assert report.taken_back == 5
        life.state.reported(life.now, Answered(1, False, (), ()))
        assert life.state.report(life.now)[0] is None
        life.registers()
