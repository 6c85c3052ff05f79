"""Who may change whose jobs, the highest priority that each role may give, and how people sign in."""

from typing import Literal

from msgspec import Struct, field

from spillover.model.identity import Oidc
from spillover.model.tokens import TokenRole
from spillover.model.units import DAY


class Access(Struct, frozen=True):
    """The rules of a server for changes of jobs."""

    changes: Literal["owner", "project"] = "owner"
    """Who, besides maintainers and admins, may change a job: its owner, or everybody who may submit to its project."""
    maintainers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Users who may change all jobs of a project, by project. Only tokens that name their user count."""
    max_priority: dict[TokenRole, int] = field(default_factory=dict)
    """The highest priority that tokens of a role may give; a role without an entry may give any."""
    sign_in_lasts: int = 7 * DAY
    """Nanoseconds after which those who signed in with a token or a link have to do so again."""
    oidc: Oidc | None = None
    """The provider of OpenID Connect where people may sign in; None for none."""

    def role_in(self, project: str, role: TokenRole, proven: str | None) -> TokenRole:
        """Return the role that a caller has in a project; `proven` is the user that its token names, None if it names none."""
        if role is TokenRole.SUBMIT and proven is not None and proven in self.maintainers.get(project, ()):
            return TokenRole.MAINTAIN
        return role

    def may_change(self, role: TokenRole, user: str, owner: str) -> bool:
        """Return whether a user with a role in the project of a job may change it."""
        match role:
            case TokenRole.ADMIN | TokenRole.MAINTAIN:
                return True
            case TokenRole.SUBMIT:
                return user == owner or self.changes == "project"
            case TokenRole.READ | TokenRole.AGENT:
                return False

    def who_may_change(self, project: str, owner: str) -> str:
        """Return in words who may change a job."""
        return f"{owner}, {self.who_maintains(project)}"

    def who_may_exceed(self, project: str, role: TokenRole, priority: int) -> str:
        """Return in words who may give a priority that a role may not give."""
        most = self.max_priority.get(TokenRole.MAINTAIN)
        if role is TokenRole.SUBMIT and (most is None or priority <= most):
            return self.who_maintains(project)
        return "an admin"

    def who_maintains(self, project: str) -> str:
        """Return in words who may do what only maintainers of a project may."""
        return f"a maintainer of project {project}{self._named(project)} or an admin"

    def _named(self, project: str) -> str:
        names = self.maintainers.get(project, ())
        return f" ({', '.join(names)})" if names else ""
