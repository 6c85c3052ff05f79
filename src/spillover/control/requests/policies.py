"""Shows and changes the policies of a running server.

A change is checked here against the installed policies before it is proposed. So the state only names policies that
could be loaded when they were chosen.
"""

from collections.abc import Iterable

from msgspec import structs

from spillover.control.live.loop import TRIES, Loop
from spillover.core.proposals import Refusal, RefusalKind, SetPolicies
from spillover.core.records.policies import PolicyNote
from spillover.deciding.engine import Engine
from spillover.forms.policystring import named_axes, read_policies
from spillover.forms.problems import BadForm
from spillover.model.policy import Choice, PolicySet, choice_of
from spillover.model.policy_options import (
    LINE_AXES,
    OPTIONS,
    Takes,
    short_duration,
    write_choice,
    write_policies,
)
from spillover.model.units import SECOND, format_duration, format_time
from spillover.policies.loading import BUILT_IN, UnknownPolicy, load
from spillover.ports.commands import CommandError, ErrorKind, refused
from spillover.wire.api import (
    FieldProblem,
    PolicyAxis,
    PolicyOutcome,
    PolicyPatch,
    PolicyRecord,
    PolicyView,
)


class PolicyRequests:
    """Shows and changes the policies of a loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    async def show(self) -> PolicyView:
        """Return the policies in use."""
        engine = await self._loop.read()
        policies, history = engine.state.facts.policies, engine.state.policies
        last = history.notes[-1] if history.notes else None
        return PolicyView(
            policy=write_policies(policies),
            axes=[self._axis(engine, axis) for axis in LINE_AXES],
            depth=policies.depth,
            unknown_runtime_s=policies.unknown_runtime / SECOND,
            since=None if last is None else format_time(last.at),
            who=None if last is None else last.who,
            how=None if last is None else last.how,
            configured=write_policies(history.configured),
            differs=policies != history.configured,
        )

    async def history(self) -> list[PolicyRecord]:
        """Return the last changes, newest first."""
        notes = (await self._loop.read()).state.policies.notes
        return [_record(note) for note in reversed(notes)]

    async def change(self, patch: PolicyPatch, who: str) -> PolicyOutcome:
        """Change the policies, or tell what that would change."""
        left = TRIES
        while True:
            state = (await self._loop.read()).state
            before, reset = state.facts.policies, patch.policy is None
            after = state.policies.configured if patch.policy is None else read_line(patch.policy, before)
            named = LINE_AXES if patch.policy is None else named_axes(patch.policy)
            check_policies(after)
            settled = [
                axis
                for axis in named
                if axis in state.policies.disabled and choice_of(before, axis) == choice_of(after, axis)
            ]
            changes = [*differences(before, after), *_settled(settled, after)]
            outcome = PolicyOutcome(write_policies(before), write_policies(after), changes, done=False)
            if patch.dry_run:
                return outcome
            (reply,) = await self._loop.propose(SetPolicies(after, who, before, tuple(named), reset))
            if not isinstance(reply, Refusal):
                return structs.replace(outcome, done=True)
            left -= 1
            if reply.kind is not RefusalKind.STALE or not left:
                raise refused(reply)

    def _axis(self, engine: Engine, axis: str) -> PolicyAxis:
        """Return the policy of one axis, with its failures."""
        policies, note = engine.policies, engine.state.policies.disabled.get(axis)
        choice = choice_of(policies.chosen, axis)
        guard = next((guard for guard in policies.guards if guard.axis == axis), None)
        name = choice.name if note is None else choice_of(note.before, axis).name
        error = policies.missing.get(axis) or (guard.error if guard is not None else "")
        return PolicyAxis(
            axis=axis,
            policy=write_choice(axis, choice),
            name=choice.name,
            options=_options(axis, choice),
            installed=f"{axis}.{choice.name}" not in BUILT_IN,
            failures=guard.failures
            if guard is not None and note is None
            else self._loop.watch.failures()[axis, name],
            error=(error or None) if note is None else _why_disabled(note),
            disabled=None if note is None else write_choice(axis, choice_of(note.before, axis)),
        )


def differences(before: PolicySet, after: PolicySet) -> list[str]:
    """Return one line for each axis that differs, such as `wait: never -> compute(0.1)`."""
    lines = [
        f"{axis}: {write_choice(axis, choice_of(before, axis))} -> {write_choice(axis, choice_of(after, axis))}"
        for axis in LINE_AXES
        if choice_of(before, axis) != choice_of(after, axis)
    ]
    if before.depth != after.depth:
        lines.append(f"depth: {before.depth} -> {after.depth}")
    if before.unknown_runtime != after.unknown_runtime:
        old, new = short_duration(before.unknown_runtime), short_duration(after.unknown_runtime)
        lines.append(f"unknown_runtime: {old} -> {new}")
    return lines


def _settled(axes: Iterable[str], after: PolicySet) -> list[str]:
    """Return one line for each axis whose fallback a user has chosen."""
    return [f"{axis}: {write_choice(axis, choice_of(after, axis))}, no longer as a fallback" for axis in axes]


def read_line(text: str, base: PolicySet) -> PolicySet:
    """Return the policies of a line, with those in use for axes that it does not name."""
    if not text.strip(" ,\t\n"):
        raise _invalid([FieldProblem("", "the line names no policy; write wait=compute(0.1),order=priority")])
    try:
        return read_policies(text, base=base)
    except BadForm as bad:
        raise _invalid([FieldProblem(each.path, each.message) for each in bad.problems]) from None


def check_policies(policies: PolicySet) -> None:
    """Raise CommandError if a policy cannot be loaded."""
    try:
        load(policies)
    except UnknownPolicy as error:
        raise _invalid([FieldProblem("", str(error))]) from None


def _invalid(problems: list[FieldProblem]) -> CommandError:
    first = ": ".join(part for part in (problems[0].path, problems[0].message) if part)
    many = f"the policy has {len(problems)} problems"
    return CommandError(ErrorKind.INVALID, first if len(problems) == 1 else many, problems)


def _options(axis: str, choice: Choice) -> dict[str, int | float | str | bool]:
    """Return options with durations in seconds."""
    kinds = OPTIONS.get(f"{axis}.{choice.name}", OPTIONS["wait.zero"] if axis == "wait" else {})
    return {
        name: value / SECOND
        if kinds.get(name) is Takes.DURATION and isinstance(value, int | float)
        else value
        for name, value in choice.options.items()
    }


def _record(note: PolicyNote) -> PolicyRecord:
    """Return a policy change in the form of the API."""
    return PolicyRecord(
        at=format_time(note.at),
        who=note.who,
        how=note.how,
        before=write_policies(note.before),
        after=write_policies(note.after),
        changes=[*differences(note.before, note.after), *_settled(note.settled, note.after)],
        error=_why_disabled(note) if note.how == "disabled" else None,
    )


def _why_disabled(note: PolicyNote) -> str:
    return note.error or f"it took {format_duration(note.took)} in one step"
