"""People sign in at a real provider of OpenID Connect, with a browser and with a program, and others do not."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from msgspec.structs import replace

from spillover.model.access import Access
from spillover.model.identity import CALLBACK, GroupRights, Oidc
from spillover.model.tokens import TokenRole
from tests.support.http import TOKEN, Threaded, threaded_server
from tests.support.oidc import CLIENT, CLIENT_SECRET, PROGRAM, Key, ProviderProcess, provider, walk
from tests.support.served import Served, served

GROUPS = (
    GroupRights("staff", TokenRole.READ),
    GroupRights("vision-people", TokenRole.SUBMIT, "vision"),
    GroupRights("operators", TokenRole.ADMIN),
)


@pytest.fixture(scope="module")
def running() -> Iterator[ProviderProcess]:
    with provider() as running:
        yield running


@pytest.fixture
def server() -> Iterator[Threaded[Served]]:
    with threaded_server(served) as server:
        yield server


@pytest.fixture
def oidc(running: ProviderProcess, server: Threaded[Served], tmp_path: Path) -> Oidc:
    """The settings of the server, which the provider knows as its client."""
    running.redirect_uris = [server.url + CALLBACK]
    running.claims_in_id_token = False
    running.configure()
    secret = tmp_path / "secret"
    secret.write_text(f"{CLIENT_SECRET}\n")
    settings = Oidc(running.issuer, CLIENT, "Lab", str(secret), PROGRAM, groups=GROUPS, domain="example.org")
    use(server, settings)
    return settings


def use(server: Threaded[Served], settings: Oidc) -> None:
    """Let a server use other settings."""
    server.inside.access.access = Access(oidc=settings)


def browser() -> httpx.Client:
    return httpx.Client(headers={"Sec-Fetch-Site": "same-origin"}, timeout=20)


def sign_in(person: httpx.Client, server: Threaded[Served], login: str) -> httpx.Response:
    """Sign in at the provider as somebody; return the last page."""
    back = walk(person, f"{server.url}/v1/sign-in/oidc", login, server.url + CALLBACK)
    return person.get(back.headers["location"]) if back.is_redirect else back


def exchange(server: Threaded[Served], id_token: str, **more: str) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/sign-in", json={"id_token": id_token, **more})


@pytest.mark.parametrize("in_id_token", [True, False], ids=["id_token", "userinfo"])
def test_a_person_has_the_rights_of_the_strongest_group(
    running: ProviderProcess, server: Threaded[Served], oidc: Oidc, in_id_token: bool
) -> None:
    running.claims_in_id_token = in_id_token
    running.configure()
    with browser() as person:
        page = sign_in(person, server, "ada")
        assert page.status_code == 200, page.text
        assert "You are ada." in page.text
        assert page.headers["refresh"] == "0;url=/"
        strict, flow = page.headers.get_list("set-cookie")
        assert "; HttpOnly; SameSite=Strict" in strict
        assert flow.startswith("spill_oidc=; Path=/v1/sign-in/oidc; Max-Age=0; HttpOnly; SameSite=Lax")
        me = person.get(f"{server.url}/v1/me").json()
        assert (me["user"], me["role"], me["project"]) == ("ada", "submit", "vision")
        (one,) = person.get(f"{server.url}/v1/sign-ins").json()
        assert (one["how"], one["current"]) == ("oidc", True)
        assert f"Max-Age={12 * 3600}" in strict or f"Max-Age={12 * 3600 - 1}" in strict
    with browser() as person:
        sign_in(person, server, "kim")
        me = person.get(f"{server.url}/v1/me").json()
        assert (me["user"], me["role"], me["project"]) == ("kim", "admin", None)


def test_an_address_of_another_domain_is_another_user(server: Threaded[Served], oidc: Oidc) -> None:
    use(server, replace(oidc, domain="elsewhere.example"))
    with browser() as person:
        sign_in(person, server, "kim")
        assert person.get(f"{server.url}/v1/me").json()["user"] == "kim_at_example.org"


@pytest.mark.parametrize(
    ("login", "told"),
    [
        ("eve", "Eve is in the groups visitors, none of which may use this server; ask an admin"),
        ("mo", "Mo is in no group (groups) that may use this server"),
    ],
)
def test_a_person_of_no_mapped_group_is_told_so(
    server: Threaded[Served], oidc: Oidc, login: str, told: str
) -> None:
    with browser() as person:
        page = sign_in(person, server, login)
        assert page.status_code == 403
        assert told in page.text
        assert 'href="/sign-in"' in page.text
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "spill_sign_in" not in person.cookies
        assert person.get(f"{server.url}/v1/me").status_code == 401


def test_a_sign_in_of_another_browser_or_without_a_beginning_is_refused(
    server: Threaded[Served], oidc: Oidc
) -> None:
    with browser() as person, browser() as other:
        back = walk(person, f"{server.url}/v1/sign-in/oidc", "ada", server.url + CALLBACK).headers["location"]
        stolen = other.get(back)
        assert stolen.status_code == 401
        assert "This sign-in was not begun in this browser" in stolen.text
        other.get(f"{server.url}/v1/sign-in/oidc")  # begun, with another state
        assert other.get(back).status_code == 401
        assert person.get(back).status_code == 200
        again = person.get(back)
        assert again.status_code == 401, "the cookie of the sign-in was used up"


def test_what_the_provider_refuses_is_said(server: Threaded[Served], oidc: Oidc, tmp_path: Path) -> None:
    with browser() as person:
        begun = person.get(f"{server.url}/v1/sign-in/oidc")
        state = httpx.URL(begun.headers["location"]).params["state"]
        query = {"state": state, "error": "access_denied", "error_description": "<b>not you</b>"}
        denied = person.get(server.url + CALLBACK, params=query)
        assert denied.status_code == 401
        assert "Lab did not sign you in: access_denied: &lt;b&gt;not you&lt;/b&gt;" in denied.text
        begun = person.get(f"{server.url}/v1/sign-in/oidc")
        state = httpx.URL(begun.headers["location"]).params["state"]
        guessed = person.get(server.url + CALLBACK, params={"state": state, "code": "guess"})
        assert "The provider refuses the code: invalid_grant" in guessed.text
    (tmp_path / "secret").write_text("wrong")
    with browser() as person:
        page = sign_in(person, server, "ada")
    assert page.status_code == 503
    assert "check access.oidc.client_id and client_secret_file" in page.text


def test_a_rotated_key_is_read_and_an_earlier_one_counts_no_more(
    running: ProviderProcess, server: Threaded[Served], oidc: Oidc
) -> None:
    earlier = running.key
    assert exchange(server, earlier.sign(running.claims("ada"))).status_code == 201
    running.rotate()
    server.inside.control.clock.pass_by(6)
    with browser() as person:
        assert sign_in(person, server, "ada").status_code == 200
    refused = exchange(server, earlier.sign(running.claims("ada", nonce="later")))
    assert refused.json()["detail"] == "the id_token is signed with a key that the provider does not have"


def test_a_program_gets_a_token_for_an_id_token_once(
    running: ProviderProcess, server: Threaded[Served], oidc: Oidc
) -> None:
    id_token = running.key.sign(running.claims("kim"))
    made = exchange(server, id_token)
    assert made.status_code == 201, made.text
    assert "set-cookie" not in made.headers
    told = made.json()
    assert (told["user"], told["role"]) == ("kim", "admin")
    headers = {"Authorization": f"Bearer {told['token']}"}
    assert httpx.get(f"{server.url}/v1/me", headers=headers).json()["sign_in"] == told["id"]
    again = exchange(server, id_token)
    assert (again.status_code, again.json()["detail"]) == (
        401,
        "this id_token was used already; sign in again",
    )
    server.inside.control.clock.pass_by(12 * 3600 + 1)
    ended = httpx.get(f"{server.url}/v1/me", headers=headers)
    assert (ended.status_code, "has expired" in ended.json()["detail"]) == (401, True)


def test_an_id_token_counts_once_also_at_once_and_with_its_signature_written_otherwise(
    running: ProviderProcess, server: Threaded[Served], oidc: Oidc
) -> None:
    id_token = running.key.sign(running.claims("kim", nonce="at once"))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: exchange(server, id_token).status_code, range(4)))
    assert sorted(answers) == [201, 401, 401, 401]
    signed, _, signature = id_token.rpartition(".")
    # The last character of a signature has bits that say nothing.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    same = f"{signed}.{signature[:-1]}{alphabet[alphabet.index(signature[-1]) ^ 1]}"
    assert exchange(server, same).json()["detail"] == "this id_token was used already; sign in again"


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": 1_000}, "the id_token has expired; sign in again"),
        ({"iat": time.time() - 3_000}, "the id_token is older than ten minutes; sign in again"),
        ({"iat": time.time() + 3_000}, "the id_token is not valid: The token is not yet valid (iat)"),
        ({"aud": "another"}, "the id_token is for another client (aud)"),
        ({"azp": "another"}, "the id_token was made for another client (azp)"),
        ({"iss": "https://evil.example"}, "the id_token is of another issuer (iss)"),
        ({"exp": None}, "the id_token is not valid"),
        ({"preferred_username": "../root"}, "'../root' (preferred_username) cannot be a user name here"),
        ({"preferred_username": ["ada"]}, "the provider does not tell the claim preferred_username"),
    ],
)
def test_a_token_that_says_something_wrong_is_refused(
    running: ProviderProcess, server: Threaded[Served], oidc: Oidc, claims: dict[str, Any], told: str
) -> None:
    said = {name: value for name, value in running.claims("ada", **claims).items() if value is not None}
    answer = exchange(server, running.key.sign(said))
    assert answer.status_code in {401, 403}
    assert answer.json()["detail"].startswith(told)


def test_a_forged_token_is_refused(running: ProviderProcess, server: Threaded[Served], oidc: Oidc) -> None:
    claims = running.claims("kim")
    forged = Key(running.key.name).sign(claims)
    assert exchange(server, forged).json()["detail"] == "the signature of the id_token is wrong"
    unknown = Key("unknown").sign(claims)
    assert "with a key that the provider does not have" in exchange(server, unknown).json()["detail"]
    unsigned = jwt.encode(claims, "", "none", headers={"kid": running.key.name})
    assert "is signed with 'none', which is not accepted" in exchange(server, unsigned).json()["detail"]
    modulus = running.key.jwk()["n"]
    confused = jwt.encode(claims, modulus, "HS256", headers={"kid": running.key.name})
    assert "is signed with 'HS256', which is not accepted" in exchange(server, confused).json()["detail"]
    head, body, _ = running.key.sign(running.claims("ada")).split(".")
    _, _, signature = running.key.sign(claims).split(".")
    mixed = exchange(server, f"{head}.{body}.{signature}")
    assert mixed.json()["detail"] == "the signature of the id_token is wrong"
    assert exchange(server, "no token").json()["detail"] == "the id_token is not a signed token (JWT)"


def test_tokens_work_while_the_provider_is_down(server: Threaded[Served], oidc: Oidc) -> None:
    use(server, replace(oidc, issuer="http://127.0.0.1:9"))
    with browser() as person:
        page = person.get(f"{server.url}/v1/sign-in/oidc")
        assert page.status_code == 503
        assert "The provider at http://127.0.0.1:9 does not answer: " in page.text
        assert "tokens work without it" in page.text
        exchanged = exchange(server, "a.b.c")
        assert exchanged.status_code == 401, "what is no token needs no provider"
        assert person.post(f"{server.url}/v1/sign-in", json={"token": TOKEN}).status_code == 201


def test_a_server_without_a_provider_says_so(server: Threaded[Served]) -> None:
    methods = httpx.get(f"{server.url}/v1/sign-in/methods").json()
    assert methods == {"token": True, "oidc": None}
    page = httpx.get(f"{server.url}/v1/sign-in/oidc")
    assert page.status_code == 400
    assert "This server has no provider of OpenID Connect (access.oidc)." in page.text


def test_methods_tell_where_to_sign_in(server: Threaded[Served], oidc: Oidc) -> None:
    assert httpx.get(f"{server.url}/v1/sign-in/methods").json()["oidc"] == {
        "name": "Lab",
        "start": "/v1/sign-in/oidc",
        "issuer": oidc.issuer,
        "client_id": PROGRAM,
        "scope": "openid profile email groups",
    }
