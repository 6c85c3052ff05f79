"""Tells what jobs ask for and will not get on this server, such as priorities that the order ignores.

None of it is an error, because the jobs run. But without a line, somebody waits for an effect that never comes.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from spillover.control.notifications.receivers import unsent_mail
from spillover.core.state import State
from spillover.forms.jobs.reading import JobForm
from spillover.model.job import Burst
from spillover.model.notifications import Notifications
from spillover.model.policy_options import IGNORE_PRIORITY
from spillover.model.queues import USUAL


def without_effect(
    forms: Iterable[JobForm], state: State, settings: Notifications | None = None
) -> list[str]:
    """Return a line for each thing that jobs ask for and that has no effect, each line once."""
    order = state.facts.policies.order.name
    flat, labels = order in IGNORE_PRIORITY, state.queues.default is None
    found: dict[str, None] = {}
    for form in forms:
        spec = form.spec
        if labels and spec.queue != USUAL:
            found[_only_a_label(spec.queue)] = None
        if flat and spec.priority:
            found[ignored_priority(order)] = None
        if spec.shape.burst is Burst.NEVER:
            if spec.terms.max_cost is not None:
                found[_never_rented("max_cost")] = None
            if spec.terms.data:
                found[_never_rented("data")] = None
        if spec.append and not (spec.stdout or spec.stderr):
            found["`open_mode` has no effect without `stdout` or `stderr`; there is only the log"] = None
        if spec.notify and (told := unsent_mail(settings or Notifications(), spec)) is not None:
            found[told] = None
    return list(found)


def change_without_effect(fields: Mapping[str, Any], state: State) -> list[str]:
    """Return a line for each field of a change of a job that has no effect."""
    order = state.facts.policies.order.name
    found = [ignored_priority(order)] if fields.get("priority") and order in IGNORE_PRIORITY else []
    queue = fields.get("queue", USUAL)
    return found + ([_only_a_label(queue)] if queue != USUAL and state.queues.default is None else [])


def ignored_priority(order: str) -> str:
    """Return in one line that a priority has no effect."""
    return (
        f"the priority has no effect, because this server's order is `{order}`; "
        "an admin can run `spill policy set order=priority`"
    )


def _only_a_label(queue: str) -> str:
    return (
        f"queue {queue!r} is only a label, because this server has no named queues; "
        "an admin can set them under `queues` in spill.yaml"
    )


def _never_rented(field: str) -> str:
    return f"`{field}` has no effect on jobs that are never rented; remove it, or `burst: never`"
