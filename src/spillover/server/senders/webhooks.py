"""Posts messages to webhooks: signed, with a time-out, over verified TLS, and without following redirects."""

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Final

import httpx

from spillover import __version__
from spillover.control.notifications.signing import headers
from spillover.model.notifications import Webhook
from spillover.model.units import SECOND
from spillover.ports.outbox import Message
from spillover.ports.sender import Unsent
from spillover.server.senders.files import Unreadable, signing_secrets

_GONE: Final = 410
"""The receiver says that it takes nothing any more."""
_TOO_LARGE: Final = 413
_READ: Final = 4096
"""Most bytes of an answer that are read; nobody needs more."""


class WebhookSender:
    """Posts to one webhook."""

    def __init__(self, hook: Webhook, clock: Callable[[], float] = time.time) -> None:
        self._hook = hook
        self._clock = clock
        """Seconds UTC, which receivers compare with their clock."""

    async def send(self, message: Message) -> None:
        """See Sender."""
        hook = self._hook
        try:
            secrets, context = await asyncio.to_thread(self._prepare)
        except (Unreadable, OSError) as error:
            raise Unsent(str(error)) from None
        signed = headers(secrets, message.id, int(self._clock()), message.body)
        more = {"content-type": "application/json", "user-agent": f"spillover/{__version__}"}
        try:
            async with asyncio.timeout(hook.timeout / SECOND):
                status, after = await self._post(context, message.body, signed | more)
        except TimeoutError:
            raise Unsent(f"no answer within {hook.timeout / SECOND:g} s") from None
        except httpx.HTTPError as error:
            raise Unsent(f"no answer: {str(error) or type(error).__name__}") from None
        if 200 <= status < 300:
            return
        told = f"answered with status {status}"
        if 300 <= status < 400:
            told += ", a redirect, which is not followed; set its present url"
        raise Unsent(told, final=status in {_GONE, _TOO_LARGE}, alone=status == _TOO_LARGE, after=after)

    def _prepare(self) -> tuple[list[bytes], ssl.SSLContext]:
        context = ssl.create_default_context(cafile=self._hook.ca)
        return signing_secrets(self._hook), context

    async def _post(self, context: ssl.SSLContext, body: bytes, sent: dict[str, str]) -> tuple[int, float]:
        """Return the status of the answer, and how many seconds it asks to wait."""
        # Without variables of the environment: a proxy there could be anything, and is not what was configured.
        client = httpx.AsyncClient(
            verify=context, follow_redirects=False, trust_env=False, timeout=self._hook.timeout / SECOND
        )
        async with client, client.stream("POST", self._hook.url, content=body, headers=sent) as answer:
            read = 0
            async for piece in answer.aiter_raw():
                read += len(piece)
                if read >= _READ:
                    break
            return answer.status_code, _seconds(answer.headers.get("retry-after", ""))


def _seconds(text: str) -> float:
    """Read `Retry-After` in seconds; 0 for a date or anything else."""
    return float(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0.0
