"""Tokens with a real server: what each lets one do, that they outlive restarts, and that secrets are nowhere but with their holders."""

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spillover.client import Client, Refused
from tests.support.fork_server import fork_server
from tests.support.processes import ServerProcess, clean_environment, wait_until, write_config

CLUSTERS = [
    {"name": "onprem", "local": [{"name": "n1", "cpu": 2}]},
    {"name": "cloud", "role": "rented", "price": {"cpu_hour": 1}},
]


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server for all tests that leave it running; each has tokens of its own."""
    folder = tmp_path_factory.mktemp("standing")
    server = ServerProcess(folder, *write_config(folder, clusters=CLUSTERS))
    try:
        yield server.up()
    finally:
        server.clear()


@pytest.fixture
def server(servers: Callable[..., ServerProcess]) -> ServerProcess:
    return servers(clusters=CLUSTERS).up()


def make(server: ServerProcess, *options: str) -> str:
    """Create a token; nothing but its text is printed."""
    made = server.spill("token", "create", *options)
    assert (made.returncode, made.stderr) == (0, ""), made
    (line,) = made.stdout.splitlines()
    assert line.startswith("spt_")
    return line


def spill_with(server: ServerProcess, token: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Type a command on a machine that has nothing but the address and a token."""
    environment = clean_environment() | {"SPILL_SERVER": server.url, "SPILL_TOKEN": token}
    return fork_server().run(words, folder=server.folder, environment=environment)


def spill_each(
    server: ServerProcess, token: str, *commands: tuple[str, ...]
) -> "Iterator[subprocess.CompletedProcess[str]]":
    """Type commands that have nothing to do with each other, two at a time; what they said, in their order."""
    with ThreadPoolExecutor(2) as people:
        yield from people.map(lambda words: spill_with(server, token, *words), commands)


def refused(done: "subprocess.CompletedProcess[str]", says: str) -> None:
    assert done.returncode == 2, done
    (line,) = done.stderr.splitlines()
    assert line.startswith("spill: ")
    assert says in line


def files_with(folder: Path, text: str) -> list[str]:
    """Files that hold a text, whatever they are."""
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and text.encode() in path.read_bytes()
    ]


def test_a_project_s_token_sees_submits_and_changes_jobs_of_the_project_alone(
    standing: ServerProcess,
) -> None:
    token = make(standing, "--role", "submit", "--project", "vision", "--user", "grace")
    other = standing.spill(
        "run", "--detach", "--project", "nlp", "--name", "theirs", "--", "sleep", "60"
    ).stdout.strip()
    own = spill_with(standing, token, "run", "--detach", "--name", "mine", "--", "echo", "hello")
    assert own.returncode == 0, own
    job = own.stdout.strip()
    assert spill_with(standing, token, "wait", job).returncode == 0
    assert spill_with(standing, token, "logs", job).stdout == "hello\n"
    shown = json.loads(spill_with(standing, token, "show", "mine", "--json").stdout)
    assert (shown["project"], shown["user"]) == ("vision", "grace")
    listed = json.loads(spill_with(standing, token, "ls", "--json").stdout)
    assert [each["id"] for each in listed] == [job]
    history = spill_with(standing, token, "events", "--json").stdout
    assert job in history
    assert other not in history
    commands = ("show", "why", "logs", "cancel", "requeue", "wait", "hold")
    for name in (other, "theirs"):
        for done in spill_each(standing, token, *((command, name) for command in commands)):
            refused(done, f"there is no job '{name}'")
    refused(
        spill_with(standing, token, "run", "--detach", "--project", "nlp", "--", "true"),
        "your token is for project 'vision'; it cannot submit to 'nlp'",
    )
    refused(spill_with(standing, token, "policy", "set", "order=lifo"), "use one of role admin")
    refused(spill_with(standing, token, "token", "list"), "use one of role admin")
    open_to_all = (("clusters",), ("agents",), ("policy", "show"), ("cost",), ("budgets",))
    for done in spill_each(standing, token, *open_to_all):
        assert done.returncode == 0, done
    assert standing.spill("cancel", other).returncode == 0


def test_an_agent_s_token_is_of_no_use_to_people(standing: ServerProcess) -> None:
    token = make(standing, "--role", "agent")
    with standing.client() as client:
        before = [job.id for job in client.jobs()]
    commands = (
        ("ls",),
        ("run", "--detach", "--", "true"),
        ("agents",),
        ("events",),
        ("policy", "show"),
        ("token", "list"),
    )
    for done in spill_each(standing, token, *commands):
        refused(done, "a token of role agent may not do this")
    with standing.client() as client:
        assert [job.id for job in client.jobs()] == before


def test_an_admin_s_token_makes_others_and_all_of_them_outlive_a_restart(server: ServerProcess) -> None:
    admin = make(server, "--role", "admin", "--note", "for the operators")
    made = spill_with(server, admin, "token", "create", "--role", "submit", "--expires", "90d", "--json")
    told = json.loads(made.stdout)
    assert told.keys() == {"id", "token", "expires_at"}
    server.kill()
    server.up()
    assert spill_with(server, told["token"], "ls").returncode == 0
    listed = json.loads(spill_with(server, admin, "token", "list", "--json").stdout)
    assert [(token["role"], token["state"], token["note"]) for token in listed] == [
        ("submit", "valid", ""),
        ("admin", "valid", "for the operators"),
    ]
    assert listed[0]["used_at"] is not None
    assert spill_with(server, admin, "token", "revoke", told["id"]).returncode == 0
    refused(spill_with(server, told["token"], "ls"), f"token {told['id']} was revoked")
    server.stop()
    server.up()
    refused(spill_with(server, told["token"], "ls"), f"token {told['id']} was revoked")
    table = server.spill("token", "list").stdout
    assert "revoked" in table
    assert "for the operators" in table


def test_a_token_that_expires_lets_nobody_in_any_more(standing: ServerProcess) -> None:
    token = make(standing, "--role", "submit", "--expires", "2s")
    with Client(standing.url, token=token) as client:
        client.server()

        def ended() -> bool:
            try:
                client.server()
            except Refused as error:
                return error.status == 401 and "has expired" in str(error)
            return False

        wait_until(ended, "the end of the token")


def test_whoever_follows_history_is_told_nothing_once_their_token_is_revoked(standing: ServerProcess) -> None:
    token = make(standing, "--role", "submit")
    before = standing.spill("run", "--", "true").stdout.strip()
    with Client(standing.url, token=token) as client:
        following = client.events(after=0, follow=True)
        while next(following).job != before:
            pass
        assert standing.spill("token", "revoke", token.split("_")[1]).returncode == 0
        after = standing.spill("run", "--", "true").stdout.strip()
        told: list[str | None] = []
        with pytest.raises(Refused, match=r"was revoked|is no longer valid") as refusal:
            told.extend(event.job for event in following)
        assert refusal.value.status == 401
        assert after not in told
    assert "Traceback" not in standing.log.read_text()


WRONG = [
    (("create",), "--role"),
    (("create", "--role", "king"), "invalid choice"),
    (("create", "--role", "agent", "--project", "p"), "cannot be limited to a project"),
    (("create", "--role", "submit", "--cluster", "onprem"), "cannot be limited to a cluster"),
    (("create", "--role", "agent", "--cluster", "moon"), "known clusters: onprem, cloud"),
    (("create", "--role", "submit", "--project", "a b"), "is not a name"),
    (("create", "--role", "submit", "--expires", "soon"), "--expires"),
    (("create", "--role", "submit", "--note", "x" * 300), "note"),
    (("revoke", "nothing"), "there is no token nothing"),
]


def test_what_makes_no_sense_is_one_line(standing: ServerProcess) -> None:
    own = (standing.data / "token").read_text().strip()
    answers = spill_each(standing, own, *(("token", *words) for words, _ in WRONG))
    for done, (_, says) in zip(answers, WRONG, strict=True):
        refused(done, says)


def test_secrets_are_nowhere_but_with_their_holders(server: ServerProcess) -> None:
    tokens = [
        make(server, "--role", "admin"),
        make(server, "--role", "submit", "--project", "vision"),
        make(server, "--role", "agent"),
    ]
    admin, submit, _ = tokens
    own = (server.data / "token").read_text().strip()
    job = spill_with(server, submit, "run", "--detach", "--", "env").stdout.strip()
    assert spill_with(server, submit, "wait", job).returncode == 0
    for token in tokens:
        spill_with(server, token, "ls")
        spill_with(server, token + "x", "ls")
    answers = [
        spill_with(server, admin, *words, "--json").stdout
        for words in (("token", "list"), ("events",), ("agents",), ("show", job), ("ls",))
    ]
    answers.append(spill_with(server, submit, "logs", job).stdout)
    answers.append(spill_with(server, admin + "x", "ls").stderr)
    for secret in [*(token.split("_", 2)[2] for token in tokens), own]:
        assert not [answer for answer in answers if secret in answer]
        for process in Path("/proc").glob("[0-9]*"):
            assert secret.encode() not in _command_line(process)
    server.stop()
    for token in tokens:
        assert files_with(server.folder, token.split("_", 2)[2]) == []
    assert files_with(server.folder, own) == ["data/token"]


def test_the_environment_of_a_job_is_not_in_the_log(server: ServerProcess) -> None:
    job = server.spill("run", "--detach", "--env", "PASSWORD=tell-nobody-9f3a", "--", "sh", "-c", "exit 3")
    assert job.returncode == 0, job
    assert server.spill("wait", job.stdout.strip()).returncode == 1
    server.stop()
    logs = [server.log, *server.data.rglob("*.log")]
    assert len(logs) > 1
    assert not [log for log in logs if b"tell-nobody-9f3a" in log.read_bytes()]


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""
