"""Translates the API server's answer to a new Job into an answer of the port: made, refused, or to be retried later."""

from typing import Final

from spillover.clusters.kubernetes.api.requests import TOO_MANY, ApiRefused, Trouble, Unsent
from spillover.ports.driver import Answer, Made

_MAY_NOT: Final = "cannot create resource"
"""Part of a refusal that concerns our permissions, not the Job."""
_QUOTA: Final = "exceeded quota"
_ENDING: Final = "NamespaceTerminating"


def answer_of(trouble: Trouble, *, unsure: bool = False) -> Answer:
    """Return what a failed request to create a Job means; `unsure` if an earlier try may have created it."""
    message = str(trouble)
    if unsure:
        return Answer(Made.UNKNOWN, message)
    if isinstance(trouble, Unsent):
        return Answer(Made.UNSENT, message)
    if not isinstance(trouble, ApiRefused):
        return Answer(Made.UNKNOWN, message)
    return Answer(Made.NOT_NOW if _may_change(trouble) else Made.REFUSED, message)


def _may_change(refused: ApiRefused) -> bool:
    """Return whether the cluster may accept the same Job later."""
    if refused.code in {401, 404, 409, TOO_MANY}:  # 404: the namespace does not exist
        return True
    if refused.code != 403:
        return False
    causes = [cause.reason for cause in refused.status.details.causes]
    return _ENDING in causes or _QUOTA in str(refused) or _MAY_NOT in str(refused)
