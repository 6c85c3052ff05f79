"""All checks, in the order of the report: what the data are in, the data, the server."""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from spillover.client import Refused, SpillError
from spillover.server.doctor import blobs, certificates, folder, running, store
from spillover.server.doctor.findings import Finding, Level, ok, problem
from spillover.server.doctor.inspection import Inspection

Check: TypeAlias = Callable[[Inspection], Iterable[Finding]]
"""Looks at one thing; finds nothing at all where there is no such thing."""

CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("data folder", folder.permissions),
    ("disk", folder.disk),
    ("leftovers", folder.leftovers),
    ("store", store.readable),
    ("integrity", store.integrity),
    ("checkpoint", store.checkpoint),
    ("journal", store.journal),
    ("clock", store.clock),
    ("specs", store.specs),
    ("files", blobs.needed),
    ("blobs", blobs.odd),
    ("server", running.server),
    ("server's clock", running.clock),
    ("set aside", running.set_aside),
    ("clusters", running.clusters),
    ("agents", running.agents),
    ("policies", running.policies),
    ("tokens", running.tokens),
    ("certificate", certificates.certificates),
)


class DoctorReport(Struct, frozen=True):
    """What all checks found."""

    healthy: bool
    """Whether nobody has to do anything."""
    findings: tuple[Finding, ...]


def examine(inspection: Inspection, checks: Iterable[tuple[str, Check]] = CHECKS) -> DoctorReport:
    """Make all checks; one that fails itself costs its line, never the others."""
    findings: list[Finding] = []
    for name, check in checks:
        inspection.tell(f"looking at: {name}")
        try:
            findings += check(inspection)
        except Refused as error:
            if error.kind != "forbidden":
                findings.append(_failed(name, error))
            else:
                findings.append(ok(name, f"not looked at: {error}"))
        except Exception as error:  # noqa: BLE001 - whatever data or a server hold, the other checks go on
            findings.append(_failed(name, error))
    return DoctorReport(all(each.level is Level.OK for each in findings), tuple(findings))


def _failed(name: str, error: Exception) -> Finding:
    """A check that could not be made."""
    said = " ".join(str(error).split())[:300]
    if isinstance(error, SpillError | OSError):
        return problem(name, f"cannot be looked at: {said}", "see that it can be read, and look again")
    told = f"cannot be looked at: {type(error).__name__}{': ' if said else ''}{said}"
    return problem(name, told, "the data may be damaged; SPILL_DEBUG=1 shows where the check failed")
