"""Reads `notifications` of spill.yaml: webhooks, the mail server, and who is told of what."""

from typing import Final

from spillover.config.urls import wrong_url
from spillover.forms.problems import Findings, Path, shown
from spillover.forms.quantities import check_name, duration
from spillover.model.notifications import (
    OF_PROJECTS,
    Mail,
    Notifications,
    Rule,
    Webhook,
    When,
    is_address,
)
from spillover.model.units import DAY, MINUTE, SECOND
from spillover.wire.notificationfile import MailDoc, NotificationsDoc, RuleDoc, WebhookDoc

_PORTS: Final = {"starttls": 587, "tls": 465, "none": 25}
_LONGEST: Final = 30 * DAY
_SECRET: Final = "a file with the secret that signs messages, as from `openssl rand -base64 32`"  # noqa: S105 - no secret


def read_notifications(doc: NotificationsDoc, found: Findings) -> Notifications:
    """Read how messages are sent and who gets which; add problems to `found`."""
    top: Path = ("notifications",)
    webhooks: dict[str, Webhook] = {}
    for at, hook in enumerate(doc.webhooks):
        path = (*top, "webhooks", at)
        if hook.name in webhooks:
            found.add((*path, "name"), f"is a second webhook {shown(hook.name)}; choose another name")
        webhooks[hook.name] = _webhook(hook, path, found)
    mail = None if doc.mail is None else _mail(doc.mail, (*top, "mail"), found)
    rules = [
        _rule(rule, (*top, "rules", at), found, webhooks, mails=mail is not None)
        for at, rule in enumerate(doc.rules)
    ]
    longest = duration(doc.give_up_after, (*top, "give_up_after"), found, least=MINUTE, most=_LONGEST)
    return Notifications(tuple(webhooks.values()), mail, tuple(rules), longest or 0)


def _webhook(doc: WebhookDoc, path: Path, found: Findings) -> Webhook:
    check_name(doc.name, (*path, "name"), found)
    if wrong := wrong_url(doc.url, "https://HOST/PATH", instead="the path", private="messages"):
        found.add((*path, "url"), wrong)
    if doc.secret_file is None and doc.secret_env is None:
        found.add(path, f"has no secret; set secret_file to {_SECRET}")
    if doc.secret_file is not None and doc.secret_env is not None:
        found.add((*path, "secret_env"), "is there beside secret_file; remove one of them")
    projects: tuple[str, ...] | None = None
    if doc.projects != "all":
        for at, name in enumerate(doc.projects):
            check_name(name, (*path, "projects", at), found)
        projects = tuple(dict.fromkeys(doc.projects))
    timeout = duration(doc.timeout, (*path, "timeout"), found, least=SECOND, most=5 * MINUTE)
    return Webhook(doc.name, doc.url, doc.secret_file, doc.secret_env, doc.ca, projects, timeout or 0)


def _mail(doc: MailDoc, path: Path, found: Findings) -> Mail:
    if not is_address(doc.sender):
        found.add((*path, "from"), f"{shown(doc.sender)} is not a mail address; write spill@example.org")
    if not doc.server.isascii() or not doc.server.isprintable() or set(doc.server) & set(" /@"):
        found.add(
            (*path, "server"),
            f"{shown(doc.server)} is not a server; write its name, such as smtp.example.org",
        )
    passwords = [each for each in (doc.password_file, doc.password_env) if each is not None]
    if len(passwords) > 1:
        found.add((*path, "password_env"), "is there beside password_file; remove one of them")
    elif doc.user is not None and not passwords:
        found.add((*path, "user"), "needs a password; set password_file or password_env")
    elif doc.user is None and passwords:
        found.add(path, "has a password and no user; set user, or remove the password")
    if doc.user is not None and doc.security == "none":
        found.add((*path, "security"), "`none` would send the password in the clear; write starttls or tls")
    for at, domain in enumerate(doc.domains):
        if not is_address(f"a@{domain}"):
            found.add((*path, "domains", at), f"{shown(domain)} is not a domain; write example.org")
    timeout = duration(doc.timeout, (*path, "timeout"), found, least=SECOND, most=5 * MINUTE)
    return Mail(
        doc.server,
        doc.sender,
        doc.port or _PORTS[doc.security],
        doc.security,
        doc.user,
        doc.password_file,
        doc.password_env,
        doc.ca,
        tuple(dict.fromkeys(domain.lower() for domain in doc.domains)),
        timeout or 0,
    )


def _rule(doc: RuleDoc, path: Path, found: Findings, webhooks: dict[str, Webhook], *, mails: bool) -> Rule:
    for at, to in enumerate(doc.to):
        where = (*path, "to", at)
        if "@" in to and not is_address(to):
            found.add(where, f"{shown(to)} is not a mail address")
        elif "@" in to and not mails:
            found.add(where, f"{shown(to)} cannot get mail; set notifications.mail")
        elif "@" not in to and to not in webhooks:
            known = ", ".join(webhooks) or "none"
            found.add(where, f"there is no webhook {shown(to)}; webhooks: {known}")
    for at, name in enumerate(doc.projects):
        check_name(name, (*path, "projects", at), found)
    on = tuple(dict.fromkeys(map(When, doc.on)))
    lost = [each for each in on if each not in OF_PROJECTS] if doc.projects else []
    if lost:
        found.add(
            (*path, "projects"),
            f"{', '.join(lost)} belongs to no project; write a rule without projects for it",
        )
    return Rule(tuple(dict.fromkeys(doc.to)), on, tuple(dict.fromkeys(doc.projects)))
