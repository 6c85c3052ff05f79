"""Checks the policies of a configuration: that they exist, accept their options and can be created."""

from collections.abc import Collection

from spillover.forms.policies import read_choice
from spillover.forms.problems import Findings, Path
from spillover.forms.quantities import duration
from spillover.model.policy import Choice, PolicySet
from spillover.policies.loading import UnknownPolicy, load
from spillover.wire.clusterfile import ChoiceDoc
from spillover.wire.configfile import PolicyDoc


def read_policies(doc: PolicyDoc, known: Collection[str] | None, found: Findings) -> PolicySet:
    """Read the policies of a configuration; add problems to `found`."""
    default, before = PolicySet(), len(found.found)
    unknown = duration(doc.unknown_runtime, ("policy", "unknown_runtime"), found, least=1)
    chosen = PolicySet(
        order=_choice(doc.order, "order", known, found) or default.order,
        backfill=_choice(doc.backfill, "backfill", known, found) or default.backfill,
        wait=_choice(doc.wait, "wait", known, found) or default.wait,
        place=_choice(doc.place, "place", known, found) or default.place,
        depth=doc.depth,
        unknown_runtime=unknown or default.unknown_runtime,
        route=_choice(doc.route, "route", known, found) or default.route,
        size=_choice(doc.size, "size", known, found) or default.size,
    )
    if known is None and len(found.found) == before:
        try:
            load(chosen)
        except UnknownPolicy as error:
            found.add(("policy", error.axis), str(error))
    return chosen


def _choice(
    doc: ChoiceDoc | None, axis: str, known: Collection[str] | None, found: Findings
) -> Choice | None:
    """Read the policy of one axis; None if there is none, or it is invalid."""
    if doc is None:
        return None
    path: Path = ("policy", axis)
    if isinstance(doc, str):
        return read_choice(axis, doc, {}, path, found, known=known)
    if len(doc) != 1:
        found.add(path, f"has {len(doc)} policies; write one, as {{name: {{option: value}}}}")
        return None
    name, options = next(iter(doc.items()))
    return read_choice(axis, name, options or {}, path, found, known=known)
