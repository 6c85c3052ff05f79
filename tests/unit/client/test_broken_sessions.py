"""A session whose answer is no session, as from something between client and server."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from spillover.client.errors import Unreachable
from spillover.client.live import LiveSession
from spillover.wire.api import SessionRequest


async def test_an_answer_that_is_no_session_is_said_and_ends_it() -> None:
    async def chunks(_: object) -> AsyncGenerator[bytes]:
        yield b"<html>please log in</html>"

    client: Any = SimpleNamespace(_chunks=chunks)
    session = LiveSession(client, "job", SessionRequest("attach"))
    session.view = SimpleNamespace(id="s1", job="job")  # type: ignore[assignment]
    with pytest.raises(Unreachable, match="something else than a session"):
        async for _ in session.frames():
            pass
