"""Decides who gets a message of what happened: those whom rules name, and those whom the job names."""

import hashlib
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from spillover.control.notifications.happenings import Happening
from spillover.model.job import JobSpec
from spillover.model.notifications import (
    MAIL,
    Notifications,
    Notify,
    When,
    channel_of,
    hook_of,
)
from spillover.model.units import format_time
from spillover.ports.outbox import Message
from spillover.wire.notices import Notice, encode_notice


def wanted_by_rules(settings: Notifications, kinds: Iterable[When]) -> bool:
    """Return whether any rule asks for one of these, so that events of the kind are worth a look."""
    return any(kind in rule.on for rule in settings.rules for kind in kinds)


def messages_of(
    happening: Happening, asked: Iterable[Notify], settings: Notifications, currency: str
) -> list[Message]:
    """Return a message for each receiver; `asked` are those whom the job names."""
    wants: dict[str, dict[When, None]] = {}
    for rule in settings.rules:
        for kind in happening.kinds:
            if rule.wants(kind, happening.project):
                for to in rule.to:
                    wants.setdefault(to, {})[kind] = None
    for one in asked:
        if may_name(settings, one.to, happening.project):
            for kind in happening.kinds:
                if kind in one.on:
                    wants.setdefault(one.to, {})[kind] = None
    return [_message(happening, to, kinds, currency) for to, kinds in wants.items()]


def may_name(settings: Notifications, to: str, project: str) -> bool:
    """Return whether jobs of a project may name a receiver, and this server can reach it."""
    if "@" in to:
        return settings.mail is not None and settings.mail.takes(to)
    hook = settings.webhook(to)
    return hook is not None and hook.takes(project)


def refusal(settings: Notifications, spec: JobSpec) -> str | None:
    """Return why a job may not name one of its receivers; None if it may name all.

    Mail on a server that sends none is no reason: the job runs, and its submitter is told.
    """
    for one in spec.notify:
        if may_name(settings, one.to, spec.project):
            continue
        if "@" not in one.to:
            return f"notify: {_no_hook(settings, one.to, spec.project)}"
        if settings.mail is not None:
            domains = ", ".join(settings.mail.domains)
            return f"notify: jobs may not send mail to {one.to}; this server allows addresses of {domains}"
    return None


def _no_hook(settings: Notifications, name: str, project: str) -> str:
    known = ", ".join(each.name for each in settings.webhooks if each.takes(project)) or "none"
    if settings.webhook(name) is not None:
        return f"jobs of project {project} may not name webhook {name!r}; they may name: {known}"
    return f"there is no webhook {name!r} that jobs of project {project} may name; they may name: {known}"


def unsent_mail(settings: Notifications, spec: JobSpec) -> str | None:
    """Return in one line that the mail that a job asks for is not sent; None if it is, or if it asks for none."""
    if settings.mail is not None or not any("@" in one.to for one in spec.notify):
        return None
    return (
        "this server sends no mail, so `notify` tells nobody by mail; `spill wait` tells when the job has ended, "
        "and an admin can set notifications.mail in spill.yaml"
    )


def trial_message(to: str, who: str, at: int, draw: str) -> Message:
    """Return a message that an admin sends to try whether messages arrive."""
    text = f"{who} tries whether notifications arrive; they do"
    notice = Notice(draw, When.TEST.value, format_time(at), text, kinds=[When.TEST.value], to=to)
    return Message(draw, channel_of(to), to, "", at, encode_notice(notice), at)


def unknown_receiver(settings: Notifications, to: str) -> str | None:
    """Return why an admin cannot send a message to a receiver; None if one can."""
    if "@" in to:
        return None if settings.mail is not None else "this server sends no mail; set notifications.mail"
    if settings.webhook(to) is not None:
        return None
    known = ", ".join(each.name for each in settings.webhooks) or "none"
    return f"there is no webhook {to[:80]!r}; webhooks: {known}"


def gone(settings: Notifications, channel: str) -> str | None:
    """Return why nothing can be sent through a channel any more; None if something can."""
    if channel == MAIL:
        return None if settings.mail is not None else "this server sends no mail any more"
    name = hook_of(channel)
    return None if settings.webhook(name) is not None else f"webhook {name} is not configured any more"


def _message(happening: Happening, to: str, kinds: Mapping[When, None], currency: str) -> Message:
    """Return the message for one receiver. Its id follows from its event, so it is the same after a crash."""
    about = f"{happening.revision}/{happening.at}/{happening.text}/{to}"
    identity = hashlib.blake2b(about.encode(), digest_size=12).hexdigest()
    job, budget = happening.job, happening.budget
    told = [kind for kind in happening.kinds if kind in kinds]
    notice = Notice(
        identity,
        told[0].value,
        format_time(happening.at),
        happening.text,
        kinds=[kind.value for kind in happening.kinds],
        to=to,
        project=happening.project or None,
        job=None if job is None else replace(job, currency=currency),
        budget=None if budget is None else replace(budget, currency=currency),
        cluster=happening.cluster,
    )
    body = encode_notice(notice)
    return Message(identity, channel_of(to), to, happening.project, happening.at, body, happening.at)
