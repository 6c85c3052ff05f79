"""`spill login` and `spill logout` with a real server and a real provider: the device flow, and what is kept of it."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_IMODE

import httpx
import pytest

from tests.support.fork_server import fork_server
from tests.support.oidc import CLIENT, CLIENT_SECRET, PROGRAM, ProviderProcess, provider, user_code, walk
from tests.support.processes import ServerProcess, clean_environment


@pytest.fixture(scope="module")
def running() -> Iterator[ProviderProcess]:
    with provider() as running:
        yield running


@pytest.fixture
def server(running: ProviderProcess, servers: Callable[..., ServerProcess], tmp_path: Path) -> ServerProcess:
    secret = tmp_path / "secret"
    secret.write_text(CLIENT_SECRET)
    oidc = {
        "issuer": running.issuer,
        "client_id": CLIENT,
        "client_secret_file": str(secret),
        "device_client_id": PROGRAM,
        "groups": [
            {"group": "vision-people", "role": "submit", "project": "vision"},
            {"group": "operators", "role": "admin"},
        ],
    }
    return servers(access={"oidc": oidc}).up()


class Laptop:
    """A machine without the server's data, where a person types commands."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.kept = folder / "config" / "spillover" / "sign-ins.json"
        self.environment = clean_environment() | {"XDG_CONFIG_HOME": str(folder / "config")}

    def type(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Type a command."""
        return fork_server().run(words, folder=self.folder, environment=self.environment)

    def login(self, running: ProviderProcess, person: str, *words: str) -> tuple[int, str, str]:
        """Type `spill login`, and enter its code in a browser; return its exit code and what it printed."""
        command = [sys.executable, "-m", "spillover.cli", "login", *words]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as typed:
            assert typed.stderr is not None
            guard = threading.Timer(60, typed.kill)
            guard.start()
            told = typed.stderr.readline()
            with httpx.Client() as browser:
                page = walk(browser, f"{running.issuer}/device?user_code={user_code(told)}", person)
            assert "Sign-in Success" in page.text
            out, errors = typed.communicate()
            guard.cancel()
        return typed.returncode, out, told + errors


def test_a_person_signs_in_works_and_signs_out(
    running: ProviderProcess, server: ServerProcess, tmp_path: Path
) -> None:
    laptop = Laptop(tmp_path / "laptop")
    code, out, told = laptop.login(running, "ada", "--server", server.url)
    assert (code, out.split(" until ")[0]) == (
        0,
        f"signed in at {server.url} as ada (role submit, project vision)",
    ), told
    assert f"open {running.issuer}/device in a browser on any machine, and enter " in told
    assert S_IMODE(laptop.kept.stat().st_mode) == 0o600
    assert S_IMODE(laptop.kept.parent.stat().st_mode) == 0o700
    submitted = laptop.type("run", "--name", "mine", "--", "true")
    assert submitted.returncode == 0, submitted.stderr
    (job,) = json.loads(laptop.type("ls", "--json").stdout)
    assert (job["user"], job["project"]) == ("ada", "vision")
    refused = laptop.type("policy", "set", "order=fifo")
    assert "a token of role submit may not do this" in refused.stderr
    text = json.loads(laptop.kept.read_text())["sign_ins"][server.url]["token"]
    left = laptop.type("logout")
    assert (left.returncode, left.stdout) == (0, f"signed out at {server.url}\n")
    assert text not in laptop.kept.read_text()
    again = laptop.type("ls")
    assert (again.returncode, "no server was started in spill-data" in again.stderr) == (2, True), (
        again.stderr
    )
    ended = httpx.get(f"{server.url}/v1/me", headers={"Authorization": f"Bearer {text}"})
    assert "was revoked" in ended.json()["detail"]
    twice = laptop.type("logout", "--server", server.url)
    assert (twice.returncode, f"you are not signed in at {server.url}" in twice.stderr) == (2, True)


def test_a_person_of_no_group_is_told_so_and_nothing_is_kept(
    running: ProviderProcess, server: ServerProcess, tmp_path: Path
) -> None:
    laptop = Laptop(tmp_path / "laptop")
    code, out, told = laptop.login(running, "eve", "--server", server.url)
    assert (code, out) == (2, "")
    assert "eve is in the groups visitors, none of which may use this server" in told
    assert not laptop.kept.exists()


def test_an_ended_sign_in_says_how_to_sign_in_again(
    running: ProviderProcess, server: ServerProcess, tmp_path: Path
) -> None:
    laptop = Laptop(tmp_path / "laptop")
    assert laptop.login(running, "kim", "--server", server.url)[0] == 0
    kept = json.loads(laptop.kept.read_text())["sign_ins"][server.url]["token"]
    assert server.spill("token", "revoke", kept.split("_")[1]).returncode == 0
    refused = laptop.type("ls")
    assert (
        refused.stderr
        == f"spill: token {kept.split('_')[1]} was revoked; run `spill login` to sign in again\n"
    )
    assert laptop.type("logout").returncode == 0


def test_a_server_without_a_provider_says_how_to_get_in(
    servers: Callable[..., ServerProcess], tmp_path: Path
) -> None:
    server = servers().up()
    typed = Laptop(tmp_path / "laptop").type("login", "--server", server.url)
    assert typed.returncode == 2
    assert typed.stderr == (
        f"spill: nobody can sign in at {server.url} without a token; "
        "get one from `spill token create`, and set SPILL_TOKEN_FILE\n"
    )


def test_a_provider_that_is_down_is_said(servers: Callable[..., ServerProcess], tmp_path: Path) -> None:
    oidc = {"issuer": "http://127.0.0.1:9", "client_id": "x", "groups": [{"group": "a", "role": "read"}]}
    server = servers(access={"oidc": oidc}).up()
    typed = Laptop(tmp_path / "laptop").type("login", "--server", server.url)
    assert typed.returncode != 0
    assert typed.stderr.startswith("spill: the provider at http://127.0.0.1:9 does not answer: ")
    assert server.spill("ls").returncode == 0, "tokens work"
