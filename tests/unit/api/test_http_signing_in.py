"""Signing in over HTTP: the cookie, what it permits, and who may not use it."""

from collections.abc import AsyncIterator
from http.cookies import SimpleCookie
from typing import Any

import httpx
import pytest

from spillover.api.http import build_app
from spillover.model.access import Access
from spillover.model.tokens import own_token_mark
from tests.support.http import TOKEN
from tests.support.served import Served, served

HERE = "http://127.0.0.1:7070"
OURS = {"Origin": HERE, "Sec-Fetch-Site": "same-origin"}
"""What a browser sends with requests of our page."""


@pytest.fixture
async def inside() -> AsyncIterator[Served]:
    async with served() as inside:
        yield inside


@pytest.fixture
async def http(inside: Served) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(build_app(inside.commands, inside.tokens, None))
    async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
        yield client


def bearer(text: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


async def token(http: httpx.AsyncClient, role: str = "submit", **fields: Any) -> dict[str, Any]:
    """Create a token; return its id and its text."""
    made = await http.post("/v1/tokens", json={"role": role, **fields}, headers=bearer())
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    return found


async def signed_in(http: httpx.AsyncClient, text: str = TOKEN, **headers: str) -> str:
    """Sign in; return the token in the cookie, which the client keeps."""
    answer = await http.post("/v1/sign-in", json={"token": text}, headers={**OURS, **headers})
    assert answer.status_code == 201, answer.text
    return answer.cookies["spill_sign_in"]


def cookie_of(answer: httpx.Response) -> Any:
    return SimpleCookie(answer.headers["set-cookie"])["spill_sign_in"]


async def test_a_sign_in_has_the_rights_of_its_token_and_a_cookie_that_no_script_can_read(
    http: httpx.AsyncClient,
) -> None:
    made = await token(http, "submit", project="vision", user="ada")
    answer = await http.post(
        "/v1/sign-in",
        json={"token": made["token"]},
        headers=OURS
        | {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"},
    )
    told = answer.json()
    assert (told["user"], told["role"], told["project"], told["token"]) == ("ada", "submit", "vision", None)
    cookie = cookie_of(answer)
    assert (cookie["httponly"], cookie["samesite"], cookie["path"], cookie["secure"]) == (
        True,
        "Strict",
        "/",
        "",
    )
    assert 7 * 86400 - 60 < int(cookie["max-age"]) <= 7 * 86400
    assert cookie.value not in answer.text
    assert cookie.value != made["token"]
    me = (await http.get("/v1/me")).json()
    assert me == {
        "user": "ada",
        "role": "submit",
        "project": "vision",
        "sign_in": told["id"],
        "expires_at": told["expires_at"],
    }
    (one,) = (await http.get("/v1/sign-ins")).json()
    assert (one["id"], one["browser"], one["how"], one["current"]) == (
        told["id"],
        "Firefox on Linux",
        "token",
        True,
    )
    listed = (await http.get("/v1/tokens", headers=bearer())).json()
    assert [(each["id"], each["sign_in"]) for each in listed] == [(told["id"], "token"), (made["id"], None)]
    forbidden = await http.post("/v1/tokens", json={"role": "admin"}, headers=OURS)
    assert forbidden.status_code == 403


@pytest.mark.parametrize(
    ("scheme", "origin", "secure"),
    [("https", "https://127.0.0.1:7070", True), ("http", "https://127.0.0.1:7070", True), ("http", HERE, "")],
)
async def test_the_cookie_is_for_tls_only_if_the_browser_uses_it(
    inside: Served, scheme: str, origin: str, secure: object
) -> None:
    transport = httpx.ASGITransport(build_app(inside.commands, inside.tokens, None))
    async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://127.0.0.1:7070") as client:
        answer = await client.post("/v1/sign-in", json={"token": TOKEN}, headers={"Origin": origin})
    assert cookie_of(answer)["secure"] == secure


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:9999", "Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": HERE, "Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": HERE}, 201),
        ({"Sec-Fetch-Site": "same-origin"}, 201),
        (OURS, 201),
        (bearer(), 201),
    ],
)
async def test_a_change_with_the_cookie_has_to_come_from_our_page(
    http: httpx.AsyncClient, headers: dict[str, str], status: int
) -> None:
    await signed_in(http)
    answer = await http.post("/v1/sign-in/links", headers=headers)
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize(
    ("site", "status"),
    [(None, 200), ("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403)],
)
async def test_reading_with_the_cookie_is_not_for_pages_of_others(
    http: httpx.AsyncClient, site: str | None, status: int
) -> None:
    await signed_in(http)
    answer = await http.get("/v1/jobs", headers={} if site is None else {"Sec-Fetch-Site": site})
    assert answer.status_code == status


async def test_a_header_counts_before_the_cookie_and_a_wrong_one_is_not_mended_by_it(
    http: httpx.AsyncClient,
) -> None:
    await signed_in(http)
    other = await token(http, "read", user="bob")
    assert (await http.get("/v1/me", headers=bearer(other["token"]))).json()["user"] == "bob"
    assert (await http.get("/v1/me", headers=bearer("spt_x_y"))).status_code == 401


async def test_only_a_sign_in_fits_into_the_cookie(http: httpx.AsyncClient) -> None:
    made = await token(http, "admin")
    for text in (made["token"], TOKEN, "spt_x_y", ""):
        answer = await http.get("/v1/me", headers={"Cookie": f"a=b; spill_sign_in={text}"})
        assert answer.status_code == 401, text
    assert (
        "you are signed out"
        in (await http.get("/v1/me", headers={"Cookie": "spill_sign_in=spt_x_y"})).json()["detail"]
    )


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({"token": "spt_x_y"}, 401, "the token is invalid"),
        ({"code": "guess"}, 401, "the sign-in link was used already or is older than a minute"),
        ({}, 400, "give one of token, code and id_token"),
        ({"token": "a", "code": "b"}, 400, "give one of token, code and id_token"),
        ({"id_token": "a.b.c"}, 400, "this server has no provider of OpenID Connect"),
        ({"token": TOKEN, "user": "a b"}, 400, "user: 'a b' is not a name"),
        ({"token": ""}, 400, "length >= 1"),
        ({"token": "spt_\u00e4_\0\U0001f600"}, 401, "the token is invalid"),
        ({"code": "\u00e4\0"}, 401, "the sign-in link was used already"),
    ],
)
async def test_who_proves_nothing_is_told_so(
    http: httpx.AsyncClient, body: dict[str, str], status: int, told: str
) -> None:
    answer = await http.post("/v1/sign-in", json=body)
    assert (answer.status_code, "set-cookie" in answer.headers) == (status, False)
    assert told in answer.json()["detail"]


async def test_a_machine_does_not_sign_in(http: httpx.AsyncClient) -> None:
    made = await token(http, "agent")
    answer = await http.post("/v1/sign-in", json={"token": made["token"]})
    assert answer.status_code == 403
    assert "a token of role agent is for machines" in answer.json()["detail"]


async def test_who_signs_out_is_out_and_loses_the_cookie(http: httpx.AsyncClient) -> None:
    text = await signed_in(http)
    answer = await http.post("/v1/sign-out", headers=OURS)
    assert answer.status_code == 200
    assert cookie_of(answer)["max-age"] == "0"
    assert "spill_sign_in" not in http.cookies
    again = await http.get("/v1/me", headers={"Cookie": f"spill_sign_in={text}"})
    assert again.status_code == 401
    assert "was revoked; sign in again" in again.json()["detail"]
    assert (await http.post("/v1/sign-out", headers=bearer())).status_code == 409


async def test_a_sign_in_ends_with_the_token_that_it_came_from(http: httpx.AsyncClient) -> None:
    made = await token(http)
    await signed_in(http, made["token"])
    assert (await http.get("/v1/me")).status_code == 200
    await http.post("/v1/tokens/revoke", json={"id": made["id"]}, headers=bearer())
    assert (await http.get("/v1/me")).status_code == 401


async def test_a_link_signs_in_once_as_the_user_who_made_it(http: httpx.AsyncClient) -> None:
    made = await http.post("/v1/sign-in/links", headers=bearer() | {"Spill-User": "ada"})
    link = made.json()
    assert made.status_code == 201
    assert link["url"] == f"{HERE}/sign-in#{link['code']}"
    answer = await http.post("/v1/sign-in", json={"code": link["code"]}, headers=OURS)
    assert (answer.json()["user"], answer.json()["role"]) == ("ada", "admin")
    assert (await http.get("/v1/me")).json()["user"] == "ada"
    assert (await http.get("/v1/me", headers={"Spill-User": "kim"})).json()[
        "user"
    ] == "kim"  # the token names nobody
    again = await http.post("/v1/sign-in", json={"code": link["code"]}, headers=OURS)
    assert again.status_code == 401


async def test_a_stated_name_does_not_become_a_proven_one(http: httpx.AsyncClient, inside: Served) -> None:
    inside.access.access = Access(maintainers={"default": ("kim",)})
    made = await token(http, "submit")
    job = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true"}}
    ids = (await http.post("/v1/jobs", json=job, headers=bearer() | {"Spill-User": "ada"})).json()["jobs"]
    await signed_in(http, made["token"], **{"Spill-User": "kim"})
    assert (await http.get("/v1/me")).json()["user"] == "kim"
    answer = await http.post("/v1/actions", json={"act": "cancel", "jobs": ids}, headers=OURS)
    assert answer.status_code == 403


async def test_people_see_and_end_their_own_sign_ins_and_admins_all(http: httpx.AsyncClient) -> None:
    ada, bob = await token(http, user="ada"), await token(http, "read", user="bob")
    first = await signed_in(http, ada["token"])
    http.cookies.clear()
    await signed_in(http, bob["token"])
    (own,) = (await http.get("/v1/sign-ins")).json()
    assert own["user"] == "bob"
    refused = await http.post("/v1/sign-ins/revoke", json={"id": first.split("_")[1]}, headers=OURS)
    assert (refused.status_code, refused.json()["detail"]) == (
        404,
        f"you have no sign-in {first.split('_')[1]}",
    )
    every = (await http.get("/v1/sign-ins", headers=bearer())).json()
    assert [each["user"] for each in every] == ["bob", "ada"]
    assert [
        each["user"] for each in (await http.get("/v1/sign-ins", headers=bearer(ada["token"]))).json()
    ] == ["ada"]
    ended = await http.post("/v1/sign-ins/revoke", json={"id": own["id"]}, headers=OURS)
    assert ended.json() == {"id": own["id"]}
    assert (await http.get("/v1/me")).status_code == 401


async def test_who_guesses_has_to_wait(http: httpx.AsyncClient, inside: Served) -> None:
    for _ in range(10):
        assert (await http.post("/v1/sign-in", json={"token": "spt_x_y"})).status_code == 401
    blocked = await http.post("/v1/sign-in", json={"token": TOKEN})
    assert blocked.status_code == 429
    assert "too many sign-ins from 127.0.0.1 failed; try again in 6 s" in blocked.json()["detail"]
    assert blocked.headers["retry-after"] == "6"
    inside.control.clock.pass_by(6)
    await signed_in(http)


async def test_one_token_signs_in_only_so_often(http: httpx.AsyncClient) -> None:
    made = await token(http)
    for _ in range(100):
        await signed_in(http, made["token"])
    answer = await http.post("/v1/sign-in", json={"token": made["token"]})
    assert answer.status_code == 429
    assert "too many sign-ins with this token" in answer.json()["detail"]


async def test_sign_ins_of_sign_ins_count_for_the_token_that_they_came_from(http: httpx.AsyncClient) -> None:
    shown = (await token(http))["token"]
    for _ in range(100):
        http.cookies.clear()
        answer = await http.post("/v1/sign-in", json={"token": shown}, headers=OURS)
        if answer.status_code != 201:
            break
        shown = answer.cookies["spill_sign_in"]
    http.cookies.clear()
    answer = await http.post("/v1/sign-in", json={"token": shown})
    assert answer.status_code == 429
    assert "too many sign-ins with this token" in answer.json()["detail"]


async def test_what_came_from_a_sign_in_with_an_earlier_token_of_the_server_ends_with_it(
    http: httpx.AsyncClient, inside: Served
) -> None:
    first = await signed_in(http)
    http.cookies.clear()
    second = await signed_in(http, first)
    assert (await http.get("/v1/me", headers=bearer(second))).status_code == 200
    inside.tokens.own_mark = own_token_mark("another token, after a restart")
    for each in (first, second):
        answer = await http.get("/v1/me", headers=bearer(each))
        assert (answer.status_code, "earlier token of the server" in answer.json()["detail"]) == (401, True)
