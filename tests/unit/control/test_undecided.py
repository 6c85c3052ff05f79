"""The live loop when something cannot be decided or read: it is told as what it is, and the loop goes on."""

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from spillover.control.live import checkpoints, loop
from spillover.core.events import AnyEvent, JobStarted, JobSubmitted
from spillover.deciding.engine import Step
from spillover.model.ids import JobId
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import Batch, Changed, Damaged
from spillover.wire.journal import encode_event
from tests.support.inside import Inside


async def test_a_submission_that_cannot_be_written_is_refused_and_logged_once(control: Inside) -> None:
    def encode(event: AnyEvent) -> bytes:
        if isinstance(event, JobSubmitted) and event.name == "bad":
            raise OverflowError("too large")
        return encode_event(event)

    control.loop.engine._encode = encode
    with capture_logs() as logs:
        for _ in range(3):
            with pytest.raises(CommandError, match="nothing was changed") as refused:
                await control.submit("bad")
            assert refused.value.kind is ErrorKind.INTERNAL
    (line,) = [each for each in logs if each["log_level"] == "error"]
    assert (line["event"], line["what"]) == ("a decision failed and was discarded", "Submit")
    assert line["exception"].endswith("OverflowError: too large")
    jobs = await control.submit("good")
    assert list(control.loop.state.jobs) == list(jobs)


async def test_what_was_encoded_is_what_is_written(control: Inside) -> None:
    encoded: list[bytes] = []

    def encode(event: AnyEvent) -> bytes:
        encoded.append(encode_event(event))
        return encoded[-1]

    control.loop.engine._encode = encode
    before = control.loop.gate.durable
    await control.submit("a", "b")
    stored = [each.event async for each in control.store.journal.tail(before)]
    assert stored == encoded
    assert len(stored) >= 2


async def test_a_journal_with_an_event_that_cannot_be_read_names_it(control: Inside) -> None:
    last = control.loop.gate.durable
    await control.store.journal.append(last, Batch(0, (b"\xc1",)), control.loop.epoch)
    with pytest.raises(Damaged, match=rf"event {last + 1} of the journal cannot be read \(DecodeError: "):
        await control.loop.load()


async def test_a_journal_with_an_event_that_cannot_be_applied_names_it(control: Inside) -> None:
    (job,) = await control.submit("a")
    last = control.loop.gate.durable
    started = encode_event(JobStarted(JobId(job), 0, 1, 1))  # of a job that has no place
    await control.store.journal.append(last, Batch(0, (started,)), control.loop.epoch)
    with pytest.raises(Damaged, match=rf"event {last + 1} of the journal cannot be read \(Impossible: "):
        await control.loop.load()


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        ("job", b"\xc1", "the record job 'x': MessagePack data is malformed"),
        ("job", b"\x90", "the record job 'x': "),
        ("riddle", b"\x90", "the record riddle 'x': there is no such kind"),
    ],
)
async def test_a_checkpoint_with_a_record_that_cannot_be_read_names_it(
    control: Inside, kind: str, body: bytes, why: str
) -> None:
    last = control.loop.gate.durable
    await control.store.journal.checkpoint(Changed(last, {(kind, "x"): body}), control.loop.epoch)
    with pytest.raises(Damaged, match=rf"the checkpoint at revision {last} cannot be read \({why}"):
        await control.loop.load()


async def test_a_checkpoint_whose_records_can_be_read_and_not_used_is_told_as_damage(control: Inside) -> None:
    last = control.loop.gate.durable
    odd = replace(control.loop.state.facts.kept, sums=("not a number",))
    await control.store.journal.checkpoint(
        Changed(last, {("facts", ""): msgspec.msgpack.encode(odd)}), control.loop.epoch
    )
    with pytest.raises(Damaged, match=rf"the checkpoint at revision {last} cannot be read \(ValueError: "):
        await control.loop.load()


async def test_a_checkpoint_of_a_state_that_is_given_up_is_not_written(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PIECE", 1)
    await control.submit("a", "b", "c")
    before, dirty = (await control.store.journal.load()).checkpoint, control.loop.state.dirty.copy()
    control.loop.problem = "the disk is full"
    with pytest.raises(CommandError, match="the disk is full"):
        await control.loop.checkpoints.write()
    assert (await control.store.journal.load()).checkpoint == before
    assert control.loop.state.dirty == dirty
    control.loop.problem = None


async def test_what_a_failing_step_left_is_not_written(
    control: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> Step:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(control.loop.engine, "step", failing)
        with pytest.raises(ZeroDivisionError):
            control.loop._step_surely()
    with pytest.raises(CommandError, match="a step failed"):
        await control.loop.checkpoints.write()
    control.loop.problem = None


async def test_while_nothing_can_be_written_what_is_due_is_not_asked_for_again_and_again(
    control: Inside,
) -> None:
    control.loop.engine.now = control.loop.now()
    control.loop.engine._ready = False  # so that a step is due at once
    assert control.loop._pause() == 0
    control.loop.problem = "the disk is full"
    assert control.loop._pause() == loop.LONGEST_WAIT
    control.loop.engine._ready, control.loop.problem = True, None
