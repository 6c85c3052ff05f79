"""Reads secrets and passwords of notifications, each time they are used, so that new ones need no restart."""

import os
from pathlib import Path

from spillover.control.notifications.signing import BadSecret, secrets_of
from spillover.forms.problems import Path as Place
from spillover.model.notifications import Mail, Notifications, Webhook

_MOST = 64 << 10


class Unreadable(Exception):
    """A file or variable cannot be used; the message says which and why, in one line."""


def signing_secrets(hook: Webhook) -> list[bytes]:
    """Return the secrets that sign messages to a webhook; raise Unreadable."""
    where, text = _text(hook.secret_file, hook.secret_env)
    try:
        return secrets_of(text)
    except BadSecret as error:
        raise Unreadable(f"{where}: {error}") from None


def password_of(mail: Mail) -> str:
    """Return the password of the mail server: the first line of its file; raise Unreadable."""
    where, text = _text(mail.password_file, mail.password_env)
    try:
        password = text.split(b"\n", 1)[0].removesuffix(b"\r").decode()
    except UnicodeDecodeError:
        raise Unreadable(f"{where}: the password is not text") from None
    if not password:
        raise Unreadable(f"{where}: the password is empty")
    return password


def problems_of(settings: Notifications) -> list[tuple[Place, str]]:
    """Return which settings name a file or variable that cannot be used, and why."""
    found: list[tuple[Place, str]] = []
    for at, hook in enumerate(settings.webhooks):
        where: Place = ("notifications", "webhooks", at)
        try:
            signing_secrets(hook)
        except Unreadable as error:
            found.append((where, str(error)))
        found += _without_ca((*where, "ca"), hook.ca)
    if (mail := settings.mail) is not None:
        try:
            if mail.user is not None:
                password_of(mail)
        except Unreadable as error:
            found.append((("notifications", "mail"), str(error)))
        found += _without_ca(("notifications", "mail", "ca"), mail.ca)
    return found


def _without_ca(where: Place, ca: str | None) -> list[tuple[Place, str]]:
    if ca is None:
        return []
    try:
        _read(ca)
    except Unreadable as error:
        return [(where, str(error))]
    return []


def _text(file: str | None, variable: str | None) -> tuple[str, bytes]:
    """Return where a secret is, and the secret."""
    if file is not None:
        return file, _read(file)
    text = os.environ.get(variable or "")
    if text is None:
        raise Unreadable(f"the server's environment has no variable {variable}")
    return f"variable {variable}", os.fsencode(text)


def _read(file: str) -> bytes:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_MOST)
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
