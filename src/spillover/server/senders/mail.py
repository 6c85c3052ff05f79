"""Sends messages as mail. A thread talks to the SMTP server, so that a slow one delays nothing else."""

import asyncio
import contextlib
import smtplib
import ssl
import threading
from collections.abc import Callable
from email.message import EmailMessage
from functools import partial
from typing import Final

from spillover.control.notifications.mails import mail_of
from spillover.model.notifications import Mail
from spillover.model.units import SECOND
from spillover.ports.outbox import Message
from spillover.ports.sender import Unsent
from spillover.server.senders.files import Unreadable, password_of
from spillover.wire.notices import decode_notice

_FINAL: Final = 500
"""Codes from here on: the server will never take this mail."""
_OPERATIONS: Final = 4
"""How often its time-out a server may take for one mail."""


class MailSender:
    """Sends mail through one server."""

    def __init__(self, mail: Mail, name: str | None = None) -> None:
        self._mail = mail
        self._name = name
        """How it introduces itself; None for the name of this machine."""

    async def send(self, message: Message) -> None:
        """See Sender."""
        letter = mail_of(decode_notice(message.body), self._mail.sender)
        patience = _OPERATIONS * self._mail.timeout / SECOND
        try:
            async with asyncio.timeout(patience):
                await _in_thread(partial(self._send, letter, message.to))
        except TimeoutError:
            raise Unsent(f"the mail server took longer than {patience:g} s") from None

    def _send(self, letter: EmailMessage, to: str) -> None:
        """Talk to the server; raise Unsent."""
        settings = self._mail
        try:
            password = "" if settings.user is None else password_of(settings)
            with self._connect() as server:
                if settings.user is not None:
                    server.login(settings.user, password)
                server.send_message(letter, settings.sender, [to])
        except smtplib.SMTPRecipientsRefused as error:
            ((code, said),) = error.recipients.values()
            raise _refused(code, said, alone=True) from None
        except smtplib.SMTPDataError as error:
            raise _refused(error.smtp_code, error.smtp_error, alone=True) from None
        except (
            smtplib.SMTPResponseException
        ) as error:  # of the sender, or of the login: mail of nobody is taken
            raise _refused(error.smtp_code, error.smtp_error, final=False) from None
        except (Unreadable, smtplib.SMTPException, OSError, ValueError) as error:
            raise Unsent(f"{settings.server}:{settings.port}: {str(error) or type(error).__name__}") from None

    def _connect(self) -> smtplib.SMTP:
        """Return an encrypted connection, unless none is configured to be."""
        settings, patience = self._mail, self._mail.timeout / SECOND
        if settings.security == "none":
            return smtplib.SMTP(settings.server, settings.port, self._name, patience)
        context = ssl.create_default_context(cafile=settings.ca)
        if settings.security == "tls":
            return smtplib.SMTP_SSL(
                settings.server, settings.port, self._name, timeout=patience, context=context
            )
        server = smtplib.SMTP(settings.server, settings.port, self._name, patience)
        try:
            server.starttls(context=context)
        except BaseException:
            server.close()
            raise
        return server


async def _in_thread(work: Callable[[], None]) -> None:
    """Run work in a thread that nobody waits for when the process ends: a mail server may hang for long."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: Exception | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: Exception | None = None
        try:
            work()
        except Exception as raised:  # noqa: BLE001 - for the task that waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, name="mail", daemon=True).start()
    await done


def _refused(code: int, said: bytes | str, *, final: bool = True, alone: bool = False) -> Unsent:
    """Return the error for an answer; those below 500 are for now only."""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return Unsent(f"the mail server answered {code} {text}", final=final and code >= _FINAL, alone=alone)
