"""Real receivers of notifications: an HTTP server, and an SMTP server, which fail when a test says so."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class HttpReceiver:
    """Notes what is posted to it, and answers as a test says."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        """Headers, with names in lower case, and body of each request."""
        self.status = 200
        self.headers: dict[str, str] = {}
        """Of its answers."""
        self.silent = False
        """Whether it never answers."""
        self.port = 0
        self._news = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers["content-length"]))
            self.got.append((headers, body))
            self._news.set()
            if self.silent:
                await asyncio.sleep(3600)
            more = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            answer = f"HTTP/1.1 {self.status} x\r\ncontent-length: 0\r\nconnection: close\r\n{more}\r\n"
            writer.write(answer.encode())
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def until(self, count: int) -> None:
        """Wait for a number of requests in all."""
        async with asyncio.timeout(20):
            while len(self.got) < count:
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def http_receiver(tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[HttpReceiver]:
    """Receive by HTTP on a free port, or a given one."""
    receiver = HttpReceiver()
    tasks: set[asyncio.Task[Any]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await receiver.serve(reader, writer)
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class SmtpReceiver:
    """Notes mail that a real SMTP server took."""

    def __init__(self) -> None:
        self.got: list[EmailMessage] = []
        self.to: list[list[str]] = []
        """Recipients of each mail, of the envelope."""
        self.users: list[str] = []
        """Who logged in."""
        self.answer: Callable[[str], str | None] = lambda _: None
        """What it answers to a recipient instead of taking it; None to take it."""
        self.port = 0

    async def handle_RCPT(  # noqa: N802 - a hook of aiosmtpd
        self, _server: Any, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        """Take a recipient, or not."""
        if (answer := self.answer(address)) is not None:
            return answer
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Session, envelope: Envelope) -> str:  # noqa: N802
        """Take a mail."""
        assert isinstance(envelope.content, bytes)
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.got.append(mail)
        self.to.append(list(envelope.rcpt_tos))
        return "250 taken"

    def login(
        self, _server: Any, _session: Session, _envelope: Envelope, _how: str, given: Any
    ) -> AuthResult:
        """Let one user in."""
        assert isinstance(given, LoginPassword)
        good = given == LoginPassword(b"spill", b"hunter2")
        if good:
            self.users.append(given.login.decode())
        return AuthResult(success=good, handled=good)


@asynccontextmanager
async def smtp_receiver(tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[SmtpReceiver]:
    """Receive mail on a free port, or a given one; with TLS, only after STARTTLS and a login."""
    receiver = SmtpReceiver()
    loop = asyncio.get_running_loop()

    def session() -> SMTP:
        return SMTP(
            receiver,
            hostname="127.0.0.1",
            tls_context=tls,
            require_starttls=tls is not None,
            auth_required=tls is not None,
            authenticator=receiver.login,
            auth_require_tls=True,
            loop=loop,
        )

    server = await loop.create_server(session, "127.0.0.1", port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
