"""Whatever is asked of the real inside of a server, over HTTP: a 4xx with one clear line, or an answer; never a fault of ours."""

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest

from spillover.api.http import build_app
from spillover.clusters.agents.hub import Hub
from spillover.config.config import Config
from spillover.control.agents.lease_sender import LeaseSender
from spillover.control.agents.tickets import Tickets
from spillover.control.controllers.sampling import Sampling
from spillover.control.driving.drivers import Drivers
from spillover.control.requests.commands import LiveCommands, Parts
from spillover.control.requests.files import JobFiles
from spillover.control.requests.rights import AccessRules
from spillover.control.requests.signing_in import SignIns
from spillover.control.requests.submitting import Submitting
from spillover.control.requests.tokens import Tokens
from spillover.control.secrets.vault import Vault
from spillover.server.administration import ServerAdministration
from spillover.server.clusters import ClusterParts, OpenClusters, cluster_settings
from spillover.server.frontier import Frontier
from spillover.server.lives import ClusterLives
from spillover.stores.blobs import MemoryBlobs
from spillover.stores.open import open_store
from spillover.stores.store import Store
from spillover.testing.world import OWNED, RENTED
from spillover.wire.api import AgentsAddress
from spillover.wire.clusterfile import LocalAgentsDoc
from spillover.wire.endpoints import ENDPOINTS, JSON, Endpoint
from tests.support.http import path_of
from tests.support.inside import leading
from tests.support.postgresql import PostgresqlServer
from tests.support.secret_keys import HandKeys
from tests.support.tiers import few_of

OWN = "the-token-of-the-server"
HUGE: Final = 10**400
TEXTS: Final = (
    "",
    "\0",
    "a\0b",
    "\ud800",
    "../../etc/passwd",
    "a" * 5000,
    "\u202e",
    "null",
    "NaN",
    "-1",
    "1e400",
    str(2**63),
    str(2**64),
    "1-1000000000",
    "0-18446744073709551615",
    "99999999999999999999s",
    "10000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:60Z",
    "2026-11-16T00:00:00+99:99",
)
VALUES: Final[tuple[Any, ...]] = (
    *TEXTS,
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    2**64,
    HUGE,
    -HUGE,
    1.5,
    1e308,
    [],
    {},
    ["\0"],
    [None] * 10,
    {"a": {"b": {}}},
    {"\ud800": "x"},
)
NOT_JSON: Final = (
    b"",
    b"\xff",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"NaN",
    b'{"jobs": [NaN]}',
    b'{"jobs": [1e999]}',
    b'"\xed\xa0\x80"',
    b'{"jobs": "\\ud800"}',
    b"null",
    b"0" * 10_000,
    b"9" * 10_000,
    b'{"jobs": [], "jobs": []}',
    b'{"apiVersion": "spillover/v1", "apiVersion": 1}',
)
JOB: Final[dict[str, Any]] = {
    "apiVersion": "spillover/v1",
    "kind": "Job",
    "metadata": {"name": "j", "project": "p", "labels": {"a": "b"}},
    "spec": {
        "run": "true",
        "env": {"A": "b"},
        "workdir": "/tmp",
        "tasks": 1,
        "resources": {"cpu": 1, "memory": "1Gi", "gpu": 0},
        "priority": 0,
        "queue": "q",
        "needs": ["gpu"],
        "array": "1-3",
        "after": ["j"],
        "key": "k",
        "walltime": "1m",
        "estimate": "1m",
        "grace": "1s",
        "deadline": "2100-01-01T00:00:00Z",
        "not_before": "2099-01-01T00:00:00Z",
        "lost_after": "1h",
        "burst": "never",
        "max_cost": "1",
        "retry": {"exit": 1, "lost": 1},
        "inputs": [{"path": "x", "digest": "0" * 64, "size": 1}],
        "outputs": ["*"],
    },
}
BODIES: Final[dict[str, Any]] = {
    "/v1/jobs": {"jobs": [JOB]},
    "/v1/forecast": JOB,
    "/v1/jobs/{job}": {"priority": 1},
    "/v1/jobs/{job}/results": {"members": "1-3", "limit": 1, "timeout": 0},
    "/v1/results": {"jobs": ["j"], "limit": 1, "timeout": 0},
    "/v1/actions": {"act": "cancel", "jobs": ["j"]},
    "/v1/policy": {"policy": {"order": "fifo"}},
    "/v1/blobs/missing": {"digests": ["0" * 64]},
    "/v1/clusters": {
        "cluster": {
            "name": "lab",
            "kind": "agents",
            "role": "rented",
            "labels": {"a": "b"},
            "price": {"cpu_hour": 1},
            "limits": {"jobs": 1},
            "local": [{"name": "m", "cpu": 1}],
        },
        "check": False,
    },
    "/v1/clusters/actions": {"act": "drain", "clusters": ["onprem"], "jobs": "finish"},
    "/v1/config": {"dry_run": False, "jobs": "finish"},
    "/v1/agents/actions": {"act": "drain", "agents": ["a"]},
    "/v1/tokens": {
        "role": "submit",
        "project": "p",
        "user": "u",
        "cluster": None,
        "expires_s": 1,
        "note": "n",
    },
    "/v1/tokens/revoke": {"id": "a"},
    "/v1/sign-in": {"token": "a", "code": "b", "id_token": "c", "access_token": "d", "user": "u"},
    "/v1/sign-ins/revoke": {"id": "a"},
    "/v1/secrets": {"name": "a", "project": "p", "value": "v", "users": ["u"]},
    "/v1/secrets/remove": {"name": "a", "project": "p"},
    "/v1/notifications/actions": {"act": "drop", "ids": ["a"]},
    "/v1/notifications/test": {"to": "a@b.c"},
}
BODIED: Final = [endpoint for endpoint in ENDPOINTS if endpoint.body.media == JSON]
WITH_QUERY: Final = [endpoint for endpoint in ENDPOINTS if endpoint.in_query]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    server = PostgresqlServer()
    yield server
    server.stop()


@pytest.fixture(params=few_of(1, ["sqlite", "postgresql"]))
async def http(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    where = request.param
    if where == "postgresql":
        where = await request.getfixturevalue("postgresql").fresh()
    kept = await open_store(where, tmp_path)
    async with contextlib.aclosing(_Closing(kept)), leading(kept) as control:
        store, blobs = control.store, MemoryBlobs()
        files = JobFiles(blobs)
        submitting = Submitting(control.loop, store.archive, control.lookup, control.specs, files=files)
        names = (OWNED.name, RENTED.name)
        config = Config((OWNED, RENTED), dict.fromkeys(names, LocalAgentsDoc()), dict.fromkeys(names, "{}"))
        runner = LeaseSender(control.loop, Hub(), control.specs, Tickets())
        clusters = OpenClusters(ClusterParts(config, tmp_path, control.loop, runner, blobs, Drivers()))
        lives = ClusterLives(control.loop, clusters, cluster_settings(config))
        tokens = Tokens(OWN, control.loop)
        parts = Parts(
            control.loop,
            store.journal,
            store.archive,
            Hub(),
            control.specs,
            control.lookup,
            submitting,
            tokens=tokens,
            sign_ins=SignIns(tokens, control.loop, AccessRules()),
            files=files,
            audit=store.audit,
            vault=Vault(control.loop, store.secrets, HandKeys()),
            outbox=store.outbox,
            clusters=ServerAdministration(
                config, control.loop, clusters, lives, lambda: config, AccessRules()
            ),
            sampling=Sampling(control.loop),
            frontier=(frontier := Frontier(control.loop, tmp_path)),
        )
        app = build_app(LiveCommands(parts), OWN, None, blobs=blobs, address=AgentsAddress(None, 7071))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app),
            base_url="http://127.0.0.1:7070",
            headers={"Authorization": f"Bearer {OWN}"},
        ) as client:
            answer = await client.post("/v1/jobs", json={**JOB, "spec": {"run": "true"}})
            assert answer.status_code == 201
            yield client
        await frontier.end()


class _Closing:
    """Closes a store in the end."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def aclose(self) -> None:
        await self._store.close()


def check(answer: httpx.Response, asked: object) -> None:
    """An answer, or a refusal of one line that is no fault of ours."""
    assert answer.status_code < 500, (asked, answer.text)
    if answer.status_code >= 400:
        problem = answer.json()
        assert problem["detail"], asked
        assert "\n" not in problem["detail"], asked
        assert len(problem["detail"]) < 2000, asked


def mutations(value: Any) -> Iterator[Any]:
    """A value with each part of it in turn replaced by something strange, left out, or joined by something unknown."""
    yield from VALUES
    if isinstance(value, dict):
        for name, part in value.items():
            for other in mutations(part):
                yield {**value, name: other}
            yield {key: kept for key, kept in value.items() if key != name}
        for name in TEXTS:
            yield {**value, name: 1}
    elif isinstance(value, list):
        for other in mutations(value[0]):
            yield [other]


def encoded(value: Any) -> bytes:
    """As JSON, lone surrogates and all."""
    return json.dumps(value).encode("ascii")


def example(endpoint: Endpoint[Any, Any, Any]) -> Any:
    """A body to spoil; of one that nobody wrote, all that could be in it is strange."""
    return BODIES.get(endpoint.path, {})


async def test_any_body_is_answered(http: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    for endpoint in BODIED:
        for body in itertools.chain(NOT_JSON, map(encoded, mutations(example(endpoint)))):
            answer = await http.request(
                endpoint.method, path_of(endpoint, job="j"), content=body, headers=headers
            )
            check(answer, (endpoint.path, body[:300]))


async def test_any_query_is_answered(http: httpx.AsyncClient) -> None:
    for endpoint in WITH_QUERY:
        job = "nobody" if endpoint.path.endswith("/wait") else "j"  # the other would be waited for
        path = path_of(endpoint, job=job)
        names = list(endpoint.in_query)
        for query in (
            *queries(names),
            "&&&",
            "a" * 9000,
            "=&=",
            "%",
            "%zz",
            "a=1&a=2",
            "limit=1&limit=2",
            "x=%ff",
        ):
            check(await http.request(endpoint.method, f"{path}?{query}", content=b""), (path, query[:300]))


def queries(names: list[str]) -> Iterator[str]:
    """Each field, and some that are none, with something strange; nothing that goes on for ever."""
    calm = {name: value for name, value in {"follow": "false", "timeout": "0"}.items() if name in names}
    for name in (*names, "\0", "unknown"):
        rest = "".join(f"&{key}={value}" for key, value in calm.items() if key != name)
        for text in TEXTS:
            yield f"{quote(name)}={quote(text.encode('utf-8', 'surrogatepass'))}{rest}"


async def test_any_name_in_a_path_is_answered(http: httpx.AsyncClient) -> None:
    strange = (*TEXTS, ".", "..", "%", "%2f", "j.1", "j.-1", "j.99999999999", "a" * 12 + ".1")
    named = [each for each in ENDPOINTS if each.in_path]
    for endpoint, text in itertools.product(named, strange):
        body = encoded(example(endpoint)) if endpoint.body.media == JSON else b""
        query = "?timeout=0" if endpoint.path.endswith("/wait") else ""
        shown = quote(text.encode("utf-8", "surrogatepass"), safe="")
        path = endpoint.path.format(**dict.fromkeys(endpoint.in_path, shown))
        check(await http.request(endpoint.method, path + query, content=body), path[:300])
        check(await http.request("BREW", path, content=body), path[:300])
    for endpoint in ENDPOINTS:
        check(await http.request("BREW", endpoint.path), endpoint.path)
