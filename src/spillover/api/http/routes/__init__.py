"""Handlers of endpoints: each calls a command and returns what its endpoint declares.

Each module has the handlers about one subject, named as in `control/requests/commands/`.
"""

from typing import Any, Final

from spillover.api.http import signing_in
from spillover.api.http.routes import access, clusters, costs, history, jobs, policies, server
from spillover.api.http.routing import HttpRoute

_MODULES: Final = (jobs, history, clusters, server, costs, policies, access, signing_in)

ROUTES: Final[tuple[HttpRoute[Any, Any], ...]] = tuple(
    bound for module in _MODULES for bound in vars(module).values() if isinstance(bound, HttpRoute)
)
"""All routes that these modules bind."""
