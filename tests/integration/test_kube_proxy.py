"""The proxy that spoils answers: what it draws it does, what it does not draw passes as it is."""

import asyncio
import json
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

from spillover.server.certificates import make_certificates
from tests.support.kube.identities import Access
from tests.support.kube.mishaps import POSSIBLE, Asked, Mishap, Mishaps, Weather
from tests.support.kube.proxy import Proxy
from tests.support.waiting import until

QUESTIONS = 400


def test_the_same_seed_spoils_the_same_questions_in_whatever_order_they_come() -> None:
    questions = [f"/jobs/{number % 7}" for number in range(200)]
    told = []
    for order in (questions, sorted(questions)):
        mishaps = Mishaps(3)
        mishaps.weather = Weather(writes=0.5)
        drawn: dict[str, list[object]] = {}
        for question in order:
            drawn.setdefault(question, []).append(mishaps.draw(Asked.WRITE, question))
        told.append(drawn)
    assert told[0] == told[1]
    other = Mishaps(4)
    other.weather = Weather(writes=0.5)
    assert [other.draw(Asked.WRITE, questions[0]) for _ in told[0][questions[0]]] != told[0][questions[0]]


@pytest.mark.parametrize("asked", list(Asked))
def test_everything_that_can_happen_to_a_question_does_and_nothing_else(asked: Asked) -> None:
    mishaps = Mishaps(1)
    mishaps.weather = Weather(reads=0.5, writes=0.5, watches=0.5)
    drawn = [mishaps.draw(asked, "/") for _ in range(QUESTIONS)]
    assert {each.mishap for each in drawn if each is not None} == set(POSSIBLE[asked])
    assert 0.4 < sum(each is not None for each in drawn) / QUESTIONS < 0.6
    assert mishaps.happened == Counter(each.mishap for each in drawn if each is not None)


def test_nothing_happens_in_fair_weather() -> None:
    mishaps = Mishaps(1)
    assert not any(mishaps.draw(asked, "/") for asked in Asked for _ in range(100))


class Upstream:
    """An API server that keeps what was written to it and tells it to who watches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[bytes] = []
        self.asked: list[str] = []
        self.watching = 0
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.raw_path} {request.headers.get('Authorization')}")
        if request.method == "POST":
            self.made.append(await request.read())
            return web.json_response({"made": len(self.made)}, status=201)
        if "watch" not in request.query:
            return web.json_response({"items": len(self.made)})
        stream = web.StreamResponse(headers={"Content-Type": "application/json"})
        await stream.prepare(request)
        self.watching += 1
        try:
            while True:
                await stream.write(json.dumps({"type": "BOOKMARK", "object": "x" * 500}).encode() + b"\n")
                await asyncio.sleep(0.02)
        finally:
            self.watching -= 1


@pytest.fixture
async def upstream(tmp_path: Path) -> AsyncIterator[Upstream]:
    make_certificates(tmp_path / "tls", ["127.0.0.1"], 2)
    shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    shown.load_cert_chain(tmp_path / "tls" / "server.pem", tmp_path / "tls" / "server-key.pem")
    made, app = Upstream(tmp_path), web.Application()
    app.router.add_route("*", "/{path:.*}", made.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=shown)
    await site.start()
    made.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
def proxy(upstream: Upstream) -> Iterator[Proxy]:
    tls = upstream.folder / "tls"
    access = Access("here", upstream.url, tls / "ca.pem", token="secret")
    certificate = tls / "server.pem", tls / "server-key.pem"
    with ExitStack() as stack:
        yield stack.enter_context(Proxy(access, certificate, upstream.folder / "kubeconfig", seed=5))


@pytest.fixture
async def session(upstream: Upstream) -> AsyncIterator[aiohttp.ClientSession]:
    trust = ssl.create_default_context(cafile=str(upstream.folder / "tls" / "ca.pem"))
    connector = aiohttp.TCPConnector(ssl=trust, force_close=True)
    async with aiohttp.ClientSession(connector=connector, headers={"Authorization": "Bearer t"}) as made:
        yield made


async def write(session: aiohttp.ClientSession, proxy: Proxy) -> int | str:
    """Ask for something to be made; the code of the answer, or what went wrong."""
    try:
        async with session.post(f"{proxy.url}/jobs", data=b"{}") as answer:
            if answer.status == 429:
                assert answer.headers["Retry-After"] == "1"
            await answer.read()
            return answer.status
    except aiohttp.ClientConnectionError as error:
        return type(error).__name__


async def test_what_is_not_spoiled_passes_as_it_is(
    upstream: Upstream, proxy: Proxy, session: aiohttp.ClientSession
) -> None:
    async with session.post(f"{proxy.url}/a/b%2Fc?x=1&y=%3D", data=b"body") as answer:
        assert (answer.status, await answer.json()) == (201, {"made": 1})
    assert upstream.made == [b"body"]
    assert upstream.asked == ["POST /a/b%2Fc?x=1&y=%3D Bearer t"]
    told = yaml.safe_load(proxy.kubeconfig.read_text())
    assert told["clusters"][0]["cluster"]["server"] == proxy.url


async def test_a_spoiled_write_was_done_or_was_not_as_its_mishap_says(
    upstream: Upstream, proxy: Proxy, session: aiohttp.ClientSession
) -> None:
    proxy.weather(Weather(writes=1.0, longest=0.25))
    told = Counter([await write(session, proxy) for _ in range(60)])
    happened = proxy.happened
    assert set(happened) == set(POSSIBLE[Asked.WRITE])
    assert told == {
        409: happened[Mishap.CONFLICT],
        429: happened[Mishap.TOO_MANY],
        500: happened[Mishap.BROKEN] + happened[Mishap.DENIED],
        201: happened[Mishap.SLOW],
        "ServerDisconnectedError": happened[Mishap.HUNG_UP],
    }
    done = (Mishap.SLOW, Mishap.DENIED, Mishap.HUNG_UP)
    assert len(upstream.made) == sum(happened[each] for each in done)


async def test_watches_are_late_break_off_or_are_told_that_they_are_too_old(
    upstream: Upstream, proxy: Proxy, session: aiohttp.ClientSession
) -> None:
    proxy.weather(Weather(watches=1.0, longest=0.25))
    ends: Counter[str] = Counter()
    for _ in range(QUESTIONS):
        before, heard = proxy.happened, b""
        try:
            async with session.get(f"{proxy.url}/pods?watch=true") as answer:
                if Mishap.SLOW in proxy.happened - before:
                    heard = await answer.content.readany()
                    ends["late"] += 1
                    continue
                async for chunk in answer.content.iter_any():
                    heard += chunk
        except aiohttp.ClientError:
            ends["cut" if heard.endswith(b"\n") else "cut in a line"] += 1
        else:
            ends["too old" if heard.splitlines()[-1].startswith(b'{"type": "ERROR"') else "refused"] += 1
        if ends.keys() >= {"late", "cut in a line", "too old", "refused"}:
            break
    happened = proxy.happened
    assert ends["too old"] == happened[Mishap.TOO_OLD]
    assert ends["late"] == happened[Mishap.SLOW]
    assert ends["cut in a line"]
    assert ends["cut"] + ends["cut in a line"] == happened[Mishap.CUT]
    await until(lambda: upstream.watching == 0, "the end of all watches of the API server")


async def test_who_is_connected_is_cut_off_and_who_comes_is_refused_until_it_opens(
    proxy: Proxy, session: aiohttp.ClientSession
) -> None:
    async with session.get(f"{proxy.url}/pods?watch=true") as answer:
        await answer.content.readline()
        assert proxy.cut() >= 1
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
    assert await write(session, proxy) == 201
    proxy.shut()
    assert await write(session, proxy) == "ClientConnectorError"
    proxy.open()
    assert await write(session, proxy) == 201
