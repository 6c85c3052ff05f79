"""Checks a running server, and the agents, clusters, policies and tokens that it depends on."""

import os
from collections.abc import Iterator
from typing import Final

from spillover import __version__
from spillover.control.telemetry.exporting import why_unreachable
from spillover.model.units import DAY, SECOND, format_duration, format_moment, parse_time
from spillover.server.doctor.findings import MOST, Finding, count, ok, problem, some, warning
from spillover.server.doctor.folder import lives, lock_holder
from spillover.server.doctor.inspection import Inspection
from spillover.server.telemetry import telemetry_of
from spillover.stores.sqlite.election import LOCK_FILE
from spillover.wire.api import AgentView, ClusterView, NotificationView

APART: Final = 5 * SECOND
"""Nanoseconds by which the server's clock may differ from ours."""
LONG: Final = DAY
"""Nanoseconds after which a drained agent may have been left drained by mistake."""
SOON: Final = 14 * DAY
"""Nanoseconds before expiry at which to warn."""


def server(inspection: Inspection) -> Iterator[Finding]:
    """Check that the server answers, accepts work, and has this version."""
    view = inspection.server
    if view is None:
        yield _silent(inspection)
        return
    if not view.writable:
        yield problem(
            "server",
            f"does not accept changes: {view.message}",
            "see docs/operations.md#full-disk-read-only-disk",
        )
    elif not view.leader:
        yield problem("server", "another server leads", "use that one, or restart this one with --standby")
    else:
        yield ok("server", f"accepts work, {count(view.queued, 'job')} queued, {view.running:,} running")
    if view.version == __version__:
        yield ok("version", view.version)
    else:
        told = f"the server has version {view.version}, this command line {__version__}"
        yield warning("version", told, "install the same version for both")


def _silent(inspection: Inspection) -> Finding:
    """Return the finding for no answer, which is a problem only if a server should run."""
    where = inspection.whereabouts
    if inspection.data is None:
        said, _, todo = inspection.silence.partition("; ")
        return problem("server", said, todo or "choose one with --server or --data")
    if where is not None and lives(where.pid):
        said = inspection.silence.partition(";")[0]
        return problem(
            "server", f"process {where.pid} runs, but {said}", "read its log; restart it if it hangs"
        )
    holder = lock_holder(inspection.data / LOCK_FILE)
    if holder is not None and lives(holder):
        told = f"process {holder} leads, but {inspection.data / 'server.json'} does not give its address"
        return warning("server", told, "it may be starting; otherwise set SPILL_SERVER")
    return ok("server", "no server runs here")


def clock(inspection: Inspection) -> Iterator[Finding]:
    """Check that the server trusts its clock, and that it agrees with ours."""
    if (view := inspection.overview) is None:
        return
    if said := view.server.clock:  # the server's own finding
        what, _, todo = said.partition("; ")
        yield warning("server's clock", what, todo or "see docs/operations.md")
        return
    apart = parse_time(view.at) - inspection.clock()
    if abs(apart) <= APART:
        yield ok("server's clock", "is this machine's")
        return
    which = "ahead of" if apart > 0 else "behind"
    todo = (
        "correct this machine's clock; it was set back, and the server waits until it catches up"
        if inspection.data is not None and apart > 0
        else "synchronise both machines with NTP"
    )
    yield warning("server's clock", f"is {format_duration(abs(apart))} {which} this machine's", todo)


def set_aside(inspection: Inspection) -> Iterator[Finding]:
    """Check that the server has not set work aside after errors."""
    if (view := inspection.overview) is None:
        return
    if view.set_aside:
        names = [
            f"{each.work}{f' of {each.subject}' if each.subject else ''} ({each.reason})"
            for each in view.set_aside
        ]
        told = (
            f"the server failed on {count(view.set_aside_in_all, 'piece')} of work and retries: {some(names)}"
        )
        yield problem("set aside", told, "`spill show JOB` and the log say why; report it if it persists")
    else:
        yield ok("set aside", "nothing")


def agents(inspection: Inspection) -> Iterator[Finding]:
    """Check that all agents are connected and accept work."""
    if inspection.server is None:
        return
    found = inspection.client.agents()
    lost = [each for each in found if each.state == "lost"]
    missing = [each for each in found if each.state == "unobserved" and each.leased]
    drained = [
        each for each in found if each.drained_by and each.state != "lost" and _for_long(inspection, each)
    ]
    if lost:
        told = f"{count(len(lost), 'agent is', 'agents are')} lost: {_names(lost)}"
        yield warning(
            "agents",
            told,
            f"read agent.log on its machine; if it is gone for good, run `spill agents forget {_typed(lost)}`",
        )
    if missing:
        told = f"{count(len(missing), 'agent holds', 'agents hold')} jobs but did not reconnect: {_names(missing)}"
        yield warning("agents", told, "start them again, or their jobs go back to the queue after lost_after")
    if drained:
        told = f"{count(len(drained), 'agent was', 'agents were')} drained long ago: {_names(drained)}"
        yield warning("agents", told, f"`spill agents resume {_typed(drained)}`, or stop them")
    if not lost and not missing and not drained:
        ready = sum(each.state == "ready" for each in found)
        yield ok("agents", f"{ready:,} of {len(found):,} are ready")


def _for_long(inspection: Inspection, agent: AgentView) -> bool:
    """Return whether an agent was drained long ago; False if the journal is not read."""
    if inspection.quick or not inspection.current:
        return False
    since = inspection.drainings.get(f"{agent.cluster}/{agent.name}", 0)  # 0: before the oldest kept event
    return inspection.clock() - since > LONG


def _names(agents: list[AgentView]) -> str:
    return some([f"{each.cluster}/{each.name}" for each in agents])


def _typed(agents: list[AgentView]) -> str:
    """Return agents as arguments of a command."""
    return " ".join(f"{each.cluster}/{each.name}" for each in agents[:MOST])


def clusters(inspection: Inspection) -> Iterator[Finding]:
    """Check that every cluster can be used."""
    if (view := inspection.overview) is None:
        return
    pooled = [each.cluster for each in inspection.pools]
    wrong = [
        each
        for each in view.clusters
        if each.why is not None or (each.state != "READY" and each.name not in pooled)
    ]
    for each in wrong:
        yield _cluster(each)
    if not wrong:
        yield ok("clusters", f"{count(len(view.clusters), 'is', 'are')} ready")


def _cluster(cluster: ClusterView) -> Finding:
    since = "" if cluster.since is None else f" since {format_moment(parse_time(cluster.since))}"
    told = f"{cluster.name} is {cluster.state}{since}{'' if cluster.why is None else f': {cluster.why}'}"
    if cluster.why is not None and cluster.kind == "agents":
        return warning(
            "clusters", told, "`spill pools` shows its machines; docs/pools.md explains its provider"
        )
    if cluster.kind != "agents":
        level = problem if cluster.state == "FAILED" else warning
        page = "kubernetes" if cluster.kind == "kubernetes" else "clusters"
        return level("clusters", told, f"check that it can be reached; docs/{page}.md explains each state")
    if cluster.state in {"EMPTY", "PROVISIONING"}:
        return warning("clusters", f"{cluster.name} has no agents", "start one; see `spill agent --help`")
    return warning(
        "clusters", f"none of the agents of {cluster.name} is ready", "`spill agents` shows their state"
    )


def pools(inspection: Inspection) -> Iterator[Finding]:
    """Check that pools rent machines when they are needed."""
    found = inspection.pools
    paused = [each for each in found if each.paused is not None]
    for each in paused:
        todo = f"mend that, then run `spill pools resume {each.cluster}`"
        yield warning("pools", f"{each.cluster} is paused: {each.paused}", todo)
    for each in found:
        if each.state == "closed":
            why = next((offer.reason for offer in each.offers if offer.reason), "")
            told = f"the provider of {each.cluster} refused all offers for now: {why}"
            yield warning("pools", told, "add offers of other types or zones, or ask for a larger quota")
    if found and not paused and all(each.state != "closed" for each in found):
        live = sum(each.state not in _OVER for pool in found for each in pool.machines)
        yield ok("pools", f"{count(len(found), 'is', 'are')} open, {count(live, 'machine')} rented")


_OVER: Final = ("gone", "refused")


def policies(inspection: Inspection) -> Iterator[Finding]:
    """Check that the chosen policies are in use and do not fail."""
    if inspection.server is None:
        return
    view = inspection.client.policy()
    wrong = False
    for axis in view.axes:
        if axis.disabled is not None:
            wrong = True
            told = f"{axis.axis}={axis.disabled} was disabled: {axis.error}; {axis.policy} decides instead"
            yield warning(
                "policies", told, f"fix its package, then run `spill policy set {axis.axis}={axis.disabled}`"
            )
        elif axis.failures or axis.error:
            wrong = True
            told = f"{axis.axis}={axis.policy} failed {count(axis.failures, 'time')}: {axis.error}"
            yield warning(
                "policies", told, "fix its package, or choose another policy with `spill policy set`"
            )
    if not wrong:
        yield ok("policies", view.policy)


def secrets(inspection: Inspection) -> Iterator[Finding]:
    """Check that the server has the keys of all secrets."""
    if inspection.server is None:
        return
    known = inspection.client.secrets()
    lost = [f"{each.project}/{each.name}" for each in known if each.state == "no_key"]
    if lost:
        told = f"the server does not have the key of {some(lost)}; tasks that use them do not start"
        yield problem("secrets", told, "restore the key file, or set these secrets again")
    elif known:
        yield ok("secrets", f"the server has the key of {count(len(known), 'secret', 'secrets')}")


def notifications(inspection: Inspection) -> Iterator[Finding]:
    """Check that messages to people arrive."""
    if inspection.server is None:
        return
    failed = next(iter(inspection.client.notifications(failed=True, limit=1)), None)
    stuck: dict[str, NotificationView] = {}
    for each in inspection.client.notifications(failed=False):  # newest first; the oldest was tried most
        if each.tries > 1 and each.tries >= getattr(stuck.get(each.channel), "tries", 0):
            stuck[each.channel] = each
    if failed is not None:
        told = f"some could not be sent, the newest one to {failed.to}: {failed.error}"
        yield warning(
            "notifications",
            told,
            "mend that, then run `spill notifications retry --failed`, or `drop --failed`",
        )
    for each in stuck.values():
        told = f"one to {each.to} was tried {each.tries} times: {each.error}"
        yield warning("notifications", told, "`spill notifications` lists those that wait")


def traces(inspection: Inspection) -> Iterator[Finding]:
    """Check that traces arrive: by what the server says, and else by a request without spans."""
    todo = "start it, or correct `telemetry.endpoint`; jobs run as before, and spans wait for a while"
    if inspection.server is not None and inspection.server.traces is not None:
        yield warning("traces", inspection.server.traces, todo)
        return
    if inspection.config is None:
        return
    receiver = telemetry_of(inspection.config.telemetry, os.environ).receiver
    if receiver is None:
        return
    if (why := why_unreachable(receiver)) is not None:
        yield warning("traces", f"their receiver does not take them: {why}", todo)
    else:
        yield ok("traces", f"go to {receiver.url}")


def tokens(inspection: Inspection) -> Iterator[Finding]:
    """Check that no token expires soon; those of agents first, as they expire unnoticed."""
    if inspection.server is None:
        return
    now = inspection.clock()
    ending = []
    for token in inspection.client.tokens():
        if token.state == "valid" and token.expires_at is not None:
            left = parse_time(token.expires_at) - now
            if left <= SOON:
                ending.append((token.role != "agent", left, token))
    for _, left, token in sorted(ending, key=lambda each: each[:2])[:MOST]:
        whose = token.note or token.user or token.cluster or token.project or f"made by {token.created_by}"
        told = f"token {token.id} of role {token.role} ({whose}) expires in {format_duration(max(0, left))}"
        then = (
            f", give it to its agents, then `spill token revoke {token.id}`" if token.role == "agent" else ""
        )
        yield warning("tokens", told, f"`spill token create --role {token.role}`{then}")
    if (more := len(ending) - MOST) > 0:
        yield warning(
            "tokens",
            f"{count(more, 'more token expires', 'more tokens expire')} within 14 days",
            "`spill token list`",
        )
    if not ending:
        yield ok("tokens", "none expires within 14 days")
