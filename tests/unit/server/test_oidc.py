"""A provider of OpenID Connect that is down, or answers nonsense: one line, and no flood of requests."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from spillover.model.identity import Oidc
from spillover.ports.identity import NotProven, ProviderFailed
from spillover.server.oidc import OpenIdProvider


class Scripted:
    """A server that answers each path with a status and a text, and counts the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.answers: dict[str, tuple[int, str]] = {}
        self.asked: list[str] = []

    def discovers(self, **changes: str) -> None:
        """Answer the discovery document, with changes."""
        usual = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/auth",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        self.answers["/.well-known/openid-configuration"] = 200, json.dumps(usual | changes)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        self.asked.append(path)
        status, text = self.answers.get(path, (404, ""))
        answer = f"HTTP/1.1 {status} X\r\ncontent-length: {len(text)}\r\nconnection: close\r\n\r\n{text}"
        writer.write(answer.encode())
        await writer.drain()
        writer.close()


@pytest.fixture
async def scripted() -> AsyncIterator[Scripted]:
    scripted = Scripted()
    async with await asyncio.start_server(scripted.serve, "127.0.0.1", 0) as listening:
        scripted.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        scripted.discovers()
        yield scripted


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


def provider(scripted: Scripted, clock: Clock | None = None, secret: str | None = None) -> OpenIdProvider:
    return OpenIdProvider(Oidc(scripted.url, "us", client_secret_file=secret), clock or Clock())


async def begin(asked: OpenIdProvider) -> str:
    return await asked.address("http://127.0.0.1:7070/back", "state", "nonce", "challenge")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((503, "busy"), "the provider answered with status 503 instead of the discovery document"),
        ((200, "<html>"), "the discovery document of the provider cannot be read: JSON is malformed"),
        ((200, "{}"), "the discovery document of the provider cannot be read: Object missing required field"),
        ((200, "[" * 100_000), "the discovery document of the provider cannot be read: "),
        ((200, " " * (1 << 20) + "x"), "sends more than 1 MiB"),
        ((302, ""), "the provider answered with status 302 instead of the discovery document"),
    ],
)
async def test_nonsense_is_one_line(scripted: Scripted, answer: tuple[int, str], told: str) -> None:
    scripted.answers["/.well-known/openid-configuration"] = answer
    with pytest.raises(ProviderFailed) as failed:
        await begin(provider(scripted))
    assert told in str(failed.value)
    assert "\n" not in str(failed.value)


async def test_a_provider_of_another_name_or_without_tls_is_refused(scripted: Scripted) -> None:
    scripted.discovers(issuer="https://login.example.org")
    with pytest.raises(
        ProviderFailed, match=r"calls itself 'https://login.example.org'; write that as access"
    ):
        await begin(provider(scripted))
    scripted.discovers(token_endpoint="http://login.example.org/token")
    with pytest.raises(ProviderFailed, match="which is not an https address"):
        await begin(provider(scripted))


async def test_its_addresses_are_kept_and_a_failure_too_for_a_moment(scripted: Scripted) -> None:
    clock = Clock()
    asked = provider(scripted, clock)
    good = scripted.answers.pop("/.well-known/openid-configuration")
    for _ in range(3):
        with pytest.raises(ProviderFailed, match="status 404"):
            await begin(asked)
    assert len(scripted.asked) == 1
    scripted.answers["/.well-known/openid-configuration"] = good
    clock.at += 5
    for _ in range(3):
        assert (await begin(asked)).startswith(f"{scripted.url}/auth?response_type=code&client_id=us&")
    assert len(scripted.asked) == 2
    clock.at += 3600
    await begin(asked)
    assert len(scripted.asked) == 3


async def test_unknown_keys_make_it_read_the_keys_again_only_now_and_then(scripted: Scripted) -> None:
    clock = Clock()
    asked = provider(scripted, clock)
    scripted.answers["/keys"] = 200, '{"keys": [{"kty": "oct", "k": "AAAA", "kid": "x"}, {"kid": "x"}]}'
    token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.e30.AAAA"
    for _ in range(3):
        with pytest.raises(NotProven, match="a key that the provider does not have"):
            await asked.check(token, None)
    assert scripted.asked.count("/keys") == 1
    clock.at += 5
    with pytest.raises(NotProven):
        await asked.check(token, None)
    assert scripted.asked.count("/keys") == 2
    scripted.answers["/keys"] = 200, '{"keys": 7}'
    clock.at += 5
    with pytest.raises(ProviderFailed, match="the key set of the provider cannot be read"):
        await asked.check(token, None)


async def test_a_secret_that_cannot_be_read_is_the_fault_of_the_server(
    scripted: Scripted, tmp_path: Path
) -> None:
    asked = provider(scripted, secret=str(tmp_path / "none"))
    with pytest.raises(
        ProviderFailed, match=r"the secret of this server cannot be read: .*none: No such file"
    ):
        await asked.redeem("code", "http://127.0.0.1:7070/back", "verifier", "nonce")
    assert "/token" not in scripted.asked


async def test_what_it_does_not_answer_in_time_is_an_error(
    scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.server.oidc.PATIENCE", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as listening:
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        with pytest.raises(ProviderFailed, match=f"the provider at {url} does not answer: "):
            await begin(OpenIdProvider(Oidc(url, "us"), Clock()))
