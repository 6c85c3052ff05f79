"""A real provider of OpenID Connect as a process: `oidc-provider`, a certified package for Node.

The package is installed once into a cache (SPILL_OIDC_CACHE, or `~/.cache/spillover/oidc`). A test that needs it is
skipped where Node or npm is missing, or cannot install it.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

HERE: Final = Path(__file__).parent
FILES: Final = ("package.json", "provider.mjs")
CLIENT: Final = "spillover"
CLIENT_SECRET: Final = "a secret of the client, with % and :"
PROGRAM: Final = "spill-cli"
"""The client of `spill login`, which has no secret."""
PEOPLE: Final[dict[str, dict[str, Any]]] = {
    "ada": {"preferred_username": "ada", "email": "ada@example.org", "groups": ["staff", "vision-people"]},
    "kim": {
        "preferred_username": "kim@example.org",
        "email": "kim@example.org",
        "groups": ["operators", "staff"],
    },
    "eve": {"preferred_username": "eve", "email": "eve@evil.example", "groups": ["visitors"]},
    "mo": {"preferred_username": "mo", "email": "mo@example.org"},
}
"""Claims by login."""


class Key:
    """A private key of the provider."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.private = rsa.generate_private_key(65537, 2048)

    def jwk(self) -> dict[str, Any]:
        """Return it in the form of a key set."""
        written: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(self.private, as_dict=True)
        written.pop("key_ops", None)
        return written | {"kid": self.name, "use": "sig", "alg": "RS256"}

    def sign(self, claims: Mapping[str, Any], **header: Any) -> str:
        """Return a token with claims, signed with this key."""
        return jwt.encode(dict(claims), self.private, "RS256", headers={"kid": self.name} | header)


class ProviderProcess:
    """The provider, which tests can stop, start again and give other keys."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[str] | None = None
        self.key = Key("first")
        self.redirect_uris = ["http://127.0.0.1:1/unused"]
        self.claims_in_id_token = False
        self.issuer = ""

    def start(self) -> None:
        """Start it."""
        node = shutil.which("node")
        assert node is not None
        self._process = subprocess.Popen(
            [node, "provider.mjs"],
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.configure()

    def configure(self) -> None:
        """Give it its present keys and clients."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        common = {"response_types": ["code"], "redirect_uris": self.redirect_uris}
        clients = [
            common
            | {"client_id": CLIENT, "client_secret": CLIENT_SECRET, "grant_types": ["authorization_code"]},
            {
                "client_id": PROGRAM,
                "token_endpoint_auth_method": "none",
                "application_type": "native",
                "grant_types": ["urn:ietf:params:oauth:grant-type:device_code"],
                "response_types": [],
                "redirect_uris": [],
            },
        ]
        config = {
            "jwks": {"keys": [self.key.jwk()]},
            "clients": clients,
            "people": PEOPLE,
            "claimsInIdToken": self.claims_in_id_token,
        }
        self._process.stdin.write(json.dumps(config) + "\n")
        self._process.stdin.flush()
        self.issuer = self._process.stdout.readline().strip()
        assert self.issuer.startswith("http://127.0.0.1:"), "the provider did not start"

    def rotate(self) -> None:
        """Replace its key."""
        self.key = Key(f"{self.key.name}-next")
        self.configure()

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    def claims(self, login: str, **others: Any) -> dict[str, Any]:
        """Return what an id_token for `spill login` says, with other claims."""
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": PROGRAM, "sub": login, "iat": now, "exp": now + 3600}
        return usual | PEOPLE[login] | others


@contextmanager
def provider() -> Iterator[ProviderProcess]:
    """Run the provider, or skip the test where that is not possible."""
    running = ProviderProcess(installed())
    running.start()
    try:
        yield running
    finally:
        running.stop()


def installed() -> Path:
    """Return the folder with the provider and its package; install them if they are not there."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("needs Node and npm for a provider of OpenID Connect")
    digest = hashlib.sha256(b"".join((HERE / name).read_bytes() for name in FILES)).hexdigest()[:16]
    cache = Path(os.environ.get("SPILL_OIDC_CACHE") or Path.home() / ".cache/spillover/oidc")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / digest
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fresh = cache / f"{digest}.new"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            for name in FILES:
                shutil.copy(HERE / name, fresh)
            options = ("--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
            done = subprocess.run(
                ["npm", "install", *options], cwd=fresh, capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                pytest.skip(f"npm cannot install oidc-provider: {done.stderr.strip()[-200:]}")
            fresh.rename(folder)
    return folder


class _Forms(HTMLParser):
    """Finds the first form of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.action: str | None = None
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See HTMLParser."""
        given = dict(attrs)
        if tag == "form" and self.action is None:
            self.action = given.get("action") or ""
        if tag == "input" and given.get("name"):
            self.fields[given["name"] or ""] = given.get("value") or ""


def walk(person: httpx.Client, url: str, login: str, until: str = "\0") -> httpx.Response:
    """Go through the pages of the provider as a person with a browser, up to an address that begins with `until`."""
    answer = person.get(url)
    for _ in range(20):
        if answer.is_redirect:
            there = urljoin(str(answer.url), answer.headers["location"])
            if there.startswith(until):
                return answer
            answer = person.get(there)
            continue
        page = _Forms()
        page.feed(answer.text)
        if answer.status_code != 200 or page.action is None:
            return answer
        fields = page.fields | ({"login": login, "password": "any"} if "login" in page.fields else {})
        if "Enter the code" in answer.text or "is incorrect" in answer.text:
            return answer
        answer = person.post(urljoin(str(answer.url), page.action), data=fields)
    raise AssertionError(f"the provider goes round in circles at {answer.url}")


def user_code(text: str) -> str:
    """Return the code that `spill login` shows."""
    found = re.search(r"\b([A-Z]{4}-[A-Z]{4})\b", text)
    assert found is not None, text
    return found[1]
