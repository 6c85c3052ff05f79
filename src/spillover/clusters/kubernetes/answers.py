"""What a cluster says to a wish, in the words of the port: what was made, what never will be, and what may be later."""

from typing import Final

from spillover.clusters.kubernetes.api import TOO_MANY, ApiRefused, Trouble, Unsent
from spillover.ports.driver import Answer, Made

_MAY_NOT: Final = "cannot create resource"
"""What a refusal says that is about who asks, not about what for."""
_QUOTA: Final = "exceeded quota"
_ENDING: Final = "NamespaceTerminating"


def answer_of(trouble: Trouble, *, unsure: bool = False) -> Answer:
    """What it means that a Job was not made; `unsure` if an earlier try may have made it."""
    message = str(trouble)
    if unsure:
        return Answer(Made.UNKNOWN, message)
    if isinstance(trouble, Unsent):
        return Answer(Made.UNSENT, message)
    if not isinstance(trouble, ApiRefused):
        return Answer(Made.UNKNOWN, message)
    return Answer(Made.NOT_NOW if _may_change(trouble) else Made.REFUSED, message)


def _may_change(refused: ApiRefused) -> bool:
    """Whether the same Job may be taken later: what is wrong is not the Job."""
    if refused.code in {401, 404, 409, TOO_MANY}:  # without a namespace nothing is found
        return True
    if refused.code != 403:
        return False
    causes = [cause.reason for cause in refused.status.details.causes]
    return _ENDING in causes or _QUOTA in str(refused) or _MAY_NOT in str(refused)
