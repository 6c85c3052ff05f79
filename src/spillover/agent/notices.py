"""Asks the metadata service of a cloud whether it will take this machine back, again and again.

Clouds announce that on the machine itself, at an address of its own: EC2 two minutes before, Compute Engine half a minute.
"""

import asyncio
import http.client
import json
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol
from urllib.parse import urlsplit

from spillover.model.units import SECOND, format_time

METADATA: Final = "http://169.254.169.254"
"""Where clouds serve metadata to their machines."""
POLL: Final = 5.0
"""Seconds between two questions. EC2 recommends this."""
PATIENCE: Final = 2.0
"""Seconds to wait for an answer, which comes from the host of the machine."""
MOST_ANSWER: Final = 64 << 10
"""Bytes of an answer that are read."""
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404
_EC2_LASTS: Final = "21600"
"""Seconds for which a token of the metadata service is valid; it accepts at most this."""
_GCE_LEFT: Final = 30 * SECOND
"""Nanoseconds from the announcement to the end of a machine on Compute Engine."""

log = logging.getLogger("spillover.agent")


class NoticesUnavailable(Exception):
    """The metadata service gives no usable answer; the message says why."""


class Notices(Protocol):
    """Asks one metadata service. Calls block."""

    def ask(self) -> int | None:
        """Return when the machine will be taken back, nanoseconds UTC; None if that was not announced."""
        ...


class Ec2Notices:
    """Asks the instance metadata service of EC2, version 2. Recommendations to rebalance are no notices."""

    def __init__(self, url: str = METADATA) -> None:
        self._url = url
        self._token = ""

    def ask(self) -> int | None:
        """See Notices."""
        status, body = self._get()
        if status == _UNAUTHORIZED:  # the token has expired
            self._token = ""
            status, body = self._get()
        if status == _NOT_FOUND:
            return None
        try:
            if status == _OK:
                at = datetime.fromisoformat(json.loads(body)["time"])
                return int(at.timestamp() * SECOND)
        except (ValueError, KeyError, TypeError):
            pass
        raise NoticesUnavailable(f"the metadata service answered {status}: {body[:100]!r}")

    def _get(self) -> tuple[int, bytes]:
        """Ask for a spot notice, with a token."""
        if not self._token:
            headers = {"X-aws-ec2-metadata-token-ttl-seconds": _EC2_LASTS}
            status, body = _ask(self._url, "PUT", "/latest/api/token", headers)
            if status != _OK:
                raise NoticesUnavailable(f"the metadata service gives no token: it answered {status}")
            self._token = body.decode(errors="replace")
        headers = {"X-aws-ec2-metadata-token": self._token}
        return _ask(self._url, "GET", "/latest/meta-data/spot/instance-action", headers)


class GceNotices:
    """Asks the metadata server of Compute Engine whether the machine is preempted."""

    def __init__(self, url: str = METADATA, wall: Callable[[], int] = time.time_ns) -> None:
        self._url = url
        self._wall = wall
        self._until: int | None = None

    def ask(self) -> int | None:
        """See Notices."""
        path = "/computeMetadata/v1/instance/preempted"
        status, body = _ask(self._url, "GET", path, {"Metadata-Flavor": "Google"})
        said = body.strip().upper()
        if status != _OK or said not in {b"TRUE", b"FALSE"}:
            raise NoticesUnavailable(f"the metadata server answered {status}: {body[:100]!r}")
        if said == b"TRUE" and self._until is None:
            self._until = self._wall() + _GCE_LEFT
        return self._until


KINDS: Final[dict[str, Callable[[str], Notices]]] = {"ec2": Ec2Notices, "gce": GceNotices}
"""Metadata services by the name that join files and options use."""


class Patient:
    """Asks a metadata service that may fail, and logs each failure once."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._last = ""

    def ask(self) -> int | None:
        """See Notices; None also if the service fails."""
        try:
            until = self._notices.ask()
        except (NoticesUnavailable, OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            if why != self._last:
                log.warning("cannot ask whether this machine will be taken back: %s; asking again", why)
            self._last = why
            return None
        self._last = ""
        if until is not None:
            log.warning("this machine will be taken back at %s", format_time(until))
        return until


async def watch(notices: Notices, noticed: Callable[[int], None], poll: float = POLL) -> None:
    """Ask until the machine is announced to be taken back; pass on when. A service that fails is asked again."""
    patient = Patient(notices)
    while True:
        until = await asyncio.to_thread(patient.ask)
        if until is not None:
            noticed(until)
            return
        await asyncio.sleep(poll)


def _ask(url: str, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """Send one request, directly and never through a proxy; raise OSError or HTTPException if there is no answer."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(MOST_ANSWER)
    finally:
        connection.close()
