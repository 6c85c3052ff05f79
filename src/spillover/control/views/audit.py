"""Shows what people did: from the audit, and from the journal what the audit does not have yet."""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from spillover.control.controllers.auditing import SPAN, read_entries, with_projects
from spillover.control.live.loop import Loop
from spillover.model.units import format_time
from spillover.ports.archive import Archive
from spillover.ports.audit import Audit, AuditEntry, AuditQuery
from spillover.ports.commands import CommandError, ErrorKind
from spillover.ports.journal import Journal
from spillover.wire.api import AuditPage, AuditView

MOST_BEHIND: Final = 5 * SPAN
"""Most events that an answer reads from the journal; more would take seconds."""


async def audit_page(
    loop: Loop, journal: Journal, archive: Archive, audit: Audit, query: AuditQuery
) -> AuditPage:
    """Return a page of what people did, newest first; raise CommandError while the audit is too far behind."""
    await loop.read()
    audited, durable = await audit.audited(), loop.gate.durable
    if durable - audited > MOST_BEHIND:
        told = (
            f"the audit is being completed from the journal: {durable - audited} events are left; retry soon"
        )
        raise CommandError(ErrorKind.UNAVAILABLE, told)
    wanted = structs.replace(query, limit=query.limit + 1)
    found: list[AuditEntry] = []
    if durable > audited and (query.before is None or query.before > audited + 1):
        latest = await with_projects(await read_entries(journal, loop.state, audited, durable), archive)
        found += [entry for entry in reversed(latest) if query.selects(entry)]
    if len(found) < wanted.limit:
        # Entries that were written meanwhile are in `found` already.
        before = audited + 1 if query.before is None else min(query.before, audited + 1)
        found += await audit.list(structs.replace(wanted, before=before, limit=wanted.limit - len(found)))
    return _page(found, query.limit)


def _page(found: Sequence[AuditEntry], limit: int) -> AuditPage:
    """Return the entries of a page, and where the next one begins if there are more."""
    entries = [
        AuditView(
            revision=each.revision,
            at=format_time(each.at),
            user=each.user,
            type=each.type,
            job=each.job or None,
            project=each.project or None,
            text=each.text,
        )
        for each in found[:limit]
    ]
    return AuditPage(entries, str(found[limit - 1].revision) if len(found) > limit else None)
