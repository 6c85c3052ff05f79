"""Runs all checks, in the order of the report: the folder, the data, the server."""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from msgspec import Struct

from spillover.client import Refused, SpillError
from spillover.server.doctor import blobs, certificates, folder, running, store
from spillover.server.doctor.findings import Finding, Level, ok, problem
from spillover.server.doctor.inspection import Inspection

Check: TypeAlias = Callable[[Inspection], Iterable[Finding]]
"""Checks one thing; yields nothing if it does not apply."""

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
    ("pools", running.pools),
    ("policies", running.policies),
    ("tokens", running.tokens),
    ("secrets", running.secrets),
    ("notifications", running.notifications),
    ("traces", running.traces),
    ("certificate", certificates.certificates),
)


class DoctorReport(Struct, frozen=True):
    """The findings of all checks."""

    healthy: bool
    """Whether there is nothing to do."""
    findings: tuple[Finding, ...]


def examine(inspection: Inspection, checks: Iterable[tuple[str, Check]] = CHECKS) -> DoctorReport:
    """Run all checks; one that fails loses only its own line."""
    findings: list[Finding] = []
    for name, check in checks:
        inspection.tell(f"checking: {name}")
        try:
            findings += check(inspection)
        except Refused as error:
            if error.kind != "forbidden":
                findings.append(_failed(name, error))
            else:
                findings.append(ok(name, f"not checked: {error}"))
        except Exception as error:  # noqa: BLE001 - other checks must run, whatever the data hold
            findings.append(_failed(name, error))
    return DoctorReport(all(each.level is Level.OK for each in findings), tuple(findings))


def _failed(name: str, error: Exception) -> Finding:
    """Return the finding for a check that failed."""
    said = " ".join(str(error).split())[:300]
    if isinstance(error, SpillError | OSError):
        return problem(name, f"cannot be checked: {said}", "make it readable, and run the check again")
    told = f"cannot be checked: {type(error).__name__}{': ' if said else ''}{said}"
    return problem(name, told, "the data may be damaged; SPILL_DEBUG=1 shows where the check failed")
