"""Who is told of what: the values of notification rules, without how messages are sent."""

import re
from enum import StrEnum
from typing import Final

from msgspec import Struct

from spillover.model.units import DAY, SECOND


class When(StrEnum):
    """What people are told of."""

    BEGIN = "begin"
    """A job begins; of an array, its first member."""
    END = "end"
    """A job ends, however it does. An array ends with its last member."""
    FAIL = "fail"
    """A job ends without success, unless a person cancelled it."""
    TIME_LIMIT = "time_limit"
    """A job ends at its walltime."""
    REQUEUE = "requeue"
    """A job returns to the queue after it was placed; not told of members of arrays."""
    BUDGET = "budget"
    """80 or 100 % of a budget are used."""
    AGENT_LOST = "agent_lost"
    """An agent is silent, and did not sign off."""
    CLUSTER_FAILED = "cluster_failed"
    """A cluster cannot be reached or used."""
    CLUSTER_READY = "cluster_ready"
    """Such a cluster can be used again."""
    POOL_PAUSED = "pool_paused"
    """Nothing is rented in a pool until somebody resumes it."""
    TEST = "test"
    """An admin tries whether messages arrive. Nobody needs a rule for it."""


OF_JOBS: Final = (When.BEGIN, When.END, When.FAIL, When.TIME_LIMIT, When.REQUEUE)
"""What jobs may ask for."""
OF_PROJECTS: Final = (*OF_JOBS, When.BUDGET)
"""What belongs to a project."""
OF_RULES: Final = tuple(each for each in When if each is not When.TEST)
"""What rules of the configuration may name."""
MOST_NOTIFY: Final = 10
"""Most receivers that a job may name."""
_ADDRESS: Final = re.compile(
    r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@"
    r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*",
    re.ASCII,
)


class Notify(Struct, frozen=True, array_like=True):
    """Somebody whom a job wants to be told."""

    to: str
    """A mail address, or the name of a webhook of the server."""
    on: tuple[When, ...] = (When.END,)


class Rule(Struct, frozen=True):
    """Who is told of what on the whole server, or in some projects."""

    to: tuple[str, ...]
    """Mail addresses, and names of webhooks."""
    on: tuple[When, ...]
    projects: tuple[str, ...] = ()
    """Only of these; empty for all, and for what belongs to no project."""

    def wants(self, when: When, project: str) -> bool:
        """Return whether it asks for this; `project` is empty for what belongs to none."""
        return when in self.on and (not self.projects or project in self.projects)


class Webhook(Struct, frozen=True):
    """A receiver of messages by HTTP, which an operator configured."""

    name: str
    url: str
    secret_file: str | None = None
    """File with the secrets that sign messages, one in each line; None if `secret_env` has it."""
    secret_env: str | None = None
    """Variable of the server's environment with the secret."""
    ca: str | None = None
    """File with the CA of its certificate; None for those that the system trusts."""
    projects: tuple[str, ...] | None = ()
    """Projects whose jobs may name it; None for all, empty for none."""
    timeout: int = 10 * SECOND
    """Nanoseconds for one try."""

    def takes(self, project: str) -> bool:
        """Return whether jobs of a project may name it."""
        return self.projects is None or project in self.projects


class Mail(Struct, frozen=True):
    """The server that takes mail."""

    server: str
    sender: str
    """Address in `From:`."""
    port: int = 587
    security: str = "starttls"
    """`starttls`, `tls` from the first byte on, or `none`."""
    user: str | None = None
    """Name to log in with; None to send without a login."""
    password_file: str | None = None
    password_env: str | None = None
    ca: str | None = None
    """As in `Webhook`."""
    domains: tuple[str, ...] = ()
    """Domains of addresses that jobs may name, in lower case; empty for all."""
    timeout: int = 30 * SECOND
    """Nanoseconds of silence after which a try has failed."""

    def takes(self, address: str) -> bool:
        """Return whether jobs may name an address."""
        return not self.domains or domain_of(address) in self.domains


class Notifications(Struct, frozen=True):
    """How this server sends messages, and who gets which."""

    webhooks: tuple[Webhook, ...] = ()
    mail: Mail | None = None
    rules: tuple[Rule, ...] = ()
    give_up_after: int = DAY
    """Nanoseconds after which a message that cannot be sent has failed."""

    def webhook(self, name: str) -> Webhook | None:
        """Return a webhook by its name; None if there is none."""
        return next((each for each in self.webhooks if each.name == name), None)


MAIL: Final = "mail"
"""The channel of all mail."""
_HOOK: Final = "webhook/"


def channel_of(to: str) -> str:
    """Return what messages for a receiver are sent through."""
    return MAIL if "@" in to else _HOOK + to


def hook_of(channel: str) -> str:
    """Return the name of the webhook of a channel."""
    return channel.removeprefix(_HOOK)


def is_address(text: str) -> bool:
    """Return whether this is a mail address, as they are written in headers without quotes."""
    return len(text) <= 254 and _ADDRESS.fullmatch(text) is not None


def domain_of(address: str) -> str:
    """Return the part of a mail address behind the @, in lower case."""
    return address.rpartition("@")[2].lower()
