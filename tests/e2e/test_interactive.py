"""Terminals, commands beside tasks, and ports of their machines: real programs in real terminals, through a real server."""

import asyncio
import contextlib
import fcntl
import http.client
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from spillover.client import AsyncClient, Client, Refused, Unavailable, Unreachable
from spillover.client.sessions import Terminal as PythonTerminal
from tests.support.processes import (
    ServerProcess,
    alive,
    clean_environment,
    free_ports,
    wait_until,
    write_config,
)


class Terminal:
    """A command in a pseudo-terminal, as somebody at a keyboard has it."""

    def __init__(self, lab: ServerProcess, *words: str, rows: int = 30, columns: int = 100) -> None:
        self.master, slave = pty.openpty()
        self.said = b""
        self.size(rows, columns)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spillover.cli", *words],
            cwd=lab.folder,
            env=clean_environment() | {"SPILL_DATA": str(lab.data), "TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - only this call
        )
        os.close(slave)

    def size(self, rows: int, columns: int) -> None:
        """Give the terminal another size."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self.master, text.encode())

    def until(self, pattern: str, seconds: float = 20.0) -> "re.Match[bytes]":
        """Read until something is printed, and forget it."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern.encode(), self.said)) is None:
            left = end - time.monotonic()
            assert left > 0, f"{pattern!r} did not come; there is {self.said!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    self.said += os.read(self.master, 1 << 16)
                except OSError:
                    raise AssertionError(f"{pattern!r} did not come; it ended with {self.said!r}") from None
        self.said = self.said[found.end() :]
        return found

    def end(self, seconds: float = 20.0) -> int:
        """Wait for its end, and return its exit code."""
        with contextlib.suppress(AssertionError):
            self.until("never printed by anything", 0.2)
        return self.process.wait(seconds)

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with one machine of four CPUs."""
    folder = tmp_path_factory.mktemp("lab")
    local = [{"name": "n1", "cpu": 4, "memory": "2Gi"}]
    clusters = [{"name": "onprem", "kind": "agents", "local": local}]
    server = ServerProcess(folder, *write_config(folder, clusters=clusters, agents={"heartbeat": "500ms"}))
    try:
        server.up()
        with server.client() as client:
            wait_until(client.agents, "the registration of the agent")
        yield server
    finally:
        server.clear()


@pytest.fixture
def client(lab: ServerProcess) -> Iterator[Client]:
    with lab.client() as client:
        yield client


@pytest.fixture
def terminal(lab: ServerProcess) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def open_one(*words: str, rows: int = 30, columns: int = 100) -> Terminal:
        opened.append(Terminal(lab, *words, rows=rows, columns=columns))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def running(client: Client) -> Iterator[Callable[..., str]]:
    """Start jobs, and wait until they run."""
    jobs: list[str] = []

    def start(line: str, **fields: object) -> str:
        [job] = client.submit(run=line, **fields)
        jobs.append(job)
        wait_until(lambda: client.job(job).state == "RUNNING", "the start of the job")
        return job

    yield start
    client.cancel(*jobs)
    client.wait(*jobs, timeout=20)


def test_a_terminal_has_our_size_our_keys_and_ends_with_the_exit_code(
    terminal: Callable[..., Terminal],
) -> None:
    shell = terminal("run", "--pty", "--name", "shell-1", "--", "bash", "--norc")
    shell.until(r"[$#] ")
    shell.type("stty size; echo $TERM; tty\n")
    shell.until(r"30 100\s+xterm-256color\s+/dev/pts/")
    shell.size(40, 120)
    shell.process.send_signal(signal.SIGWINCH)
    shell.type("""until [ "$(stty size)" = "$((20 + 20)) 120" ]; do sleep 0.05; done; echo re""sized\n""")
    shell.until("resized")
    shell.type('(echo be""gun; sleep 1000)\n')
    shell.until("begun")
    shell.type("\x03")
    shell.type("echo after $?\n")
    shell.until(r"\rafter 130")
    shell.type("exit 7\n")
    assert shell.end() == 7


def test_people_detach_and_come_back(terminal: Callable[..., Terminal], client: Client) -> None:
    shell = terminal("run", "--pty", "--name", "shell-2", "--", "bash", "--norc")
    shell.until(r"[$#] ")
    shell.type("hidden=treasure\n")
    shell.until(r"[$#] ")
    shell.type("\x1dd")
    told = shell.until(r"spill: detached; the job goes on, and `spill attach (\w+)` comes back to it")
    assert shell.end() == 0
    job = told[1].decode()
    assert client.job(job).state == "RUNNING"
    back = terminal("attach", "shell-2", rows=20, columns=60)
    back.until(r"treasure")
    back.type("echo a $hidden; stty size\n")
    back.until(r"a treasure\s+20 60")
    other = terminal("attach", "shell-2")
    other.until(r"treasure")
    back.until("somebody else has attached to this terminal")
    assert back.end() == 2
    other.type("kill -9 $$\n")
    assert other.end() == 137
    (ended,) = client.wait(job, timeout=20)
    assert (ended.state, ended.signal) == ("FAILED", 9)
    assert b"a treasure" in b"".join(client.logs(job))


def test_a_client_that_is_killed_is_detached_and_a_cancelled_shell_ends(
    terminal: Callable[..., Terminal], client: Client
) -> None:
    shell = terminal("run", "--pty", "--name", "shell-3", "--", "bash", "--norc")
    shell.until(r"[$#] ")
    shell.process.kill()
    back = terminal("attach", "shell-3")
    back.until(r"[$#] ")
    began = time.monotonic()
    client.cancel("shell-3")
    assert back.end() in {128 + 1, 128 + 15, 2}
    (ended,) = client.wait("shell-3", timeout=20)
    assert ended.state == "CANCELLED"
    assert time.monotonic() - began < 9, "HUP ended it, and not the KILL after its grace"


def test_a_command_runs_beside_a_task(lab: ServerProcess, running: Callable[..., str]) -> None:
    job = running("sleep 1000", env={"COLOR": "blue"}, workdir=str(lab.folder))
    done = lab.spill("exec", job, "--", "sh", "-c", "echo $COLOR $SPILL_JOB_ID; pwd; echo wrong >&2; exit 5")
    assert (done.returncode, done.stdout, done.stderr) == (5, f"blue {job}\n{lab.folder}\n", "wrong\n")
    assert lab.spill("exec", job, "--", "sort", typed="b\na\n").stdout == "a\nb\n"
    missing = lab.spill("exec", job, "--", "no-such-program")
    assert (missing.returncode, missing.stderr) == (127, "no-such-program: No such file or directory\n")
    assert lab.spill("exec", job, "--", "sh", "-c", "kill -9 $$").returncode == 137
    large = lab.spill("exec", job, "--", "head", "-c", "5000000", "/dev/zero")
    assert len(large.stdout) == 5_000_000
    groups = lab.spill("exec", job, "--", "cat", "/proc/self/cgroup").stdout
    task = next(pid for pid in lab.tasks() if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes())
    assert groups == Path(f"/proc/{task}/cgroup").read_text()


def test_python_runs_commands_beside_tasks_too(client: Client, running: Callable[..., str]) -> None:
    job = running("sleep 1000")
    done = client.exec(job, ["sh", "-c", "cat; echo out; echo err >&2; exit 3"])
    assert done == (3, b"out\n", b"err\n")


def printed(terminal: PythonTerminal, pattern: bytes, seconds: float = 20.0) -> bytes:
    """Read until something was printed."""
    said = b""
    while not re.search(pattern, said):
        piece = terminal.read(seconds)
        assert piece, f"the program ended with {said!r}"
        said += piece
    return said


def test_python_works_in_the_terminal_of_a_job(client: Client, running: Callable[..., str]) -> None:
    job = running("exec bash --norc", terminal=True, name="python-shell")
    with client.attach("python-shell", rows=33, columns=99) as terminal:
        assert terminal.job == job
        printed(terminal, rb"[$#] ")
        terminal.send("stty size\n")
        printed(terminal, rb"33 99")
        terminal.resize(20, 50)
        terminal.send(b"until [ \"$(stty size)\" = '20 50' ]; do sleep 0.05; done; echo re''sized\n")
        printed(terminal, rb"resized")
        with pytest.raises(TimeoutError, match=rf"the terminal of {job} printed nothing for 0\.1 seconds"):
            printed(terminal, rb"never printed by anything", seconds=0.1)
        terminal.send("(echo be''gun; sleep 1000)\n")
        printed(terminal, rb"begun")
        terminal.send("\x03")
        printed(terminal, rb"[$#] ")
    assert client.job(job).state == "RUNNING", "leaving the block only detaches"
    with pytest.raises(RuntimeError, match="the session is not open"):
        terminal.send("x")
    with client.attach(job) as again:
        printed(again, rb"resized")  # the last output again, once it is attached
        with client.attach(job) as other:
            with pytest.raises(Unavailable, match="somebody else has attached to this terminal"):
                list(again)
            with pytest.raises(Unavailable, match="somebody else"):
                again.read()
            other.send("echo last; exit 3\n")
            assert b"last" in b"".join(other)
            assert (other.code, other.read()) == (3, b"")
    client.wait(job, timeout=20)
    with pytest.raises(Refused, match="does not run"), client.attach(job):
        pass


async def test_asyncio_works_in_the_terminal_of_a_job(
    lab: ServerProcess, running: Callable[..., str]
) -> None:
    job = running("exec bash --norc", terminal=True)
    async with AsyncClient(data=lab.data) as client, client.attach(job) as terminal:
        await terminal.send("kill -9 $$\n")
        said = b"".join([piece async for piece in terminal])
        assert b"kill -9" in said
        assert terminal.code == -9


async def test_sessions_for_python_are_opened_by_a_block(lab: ServerProcess, client: Client) -> None:
    closed = "the session is not open; use it with `with`"
    with pytest.raises(RuntimeError, match=closed):
        str(client.forward("any", 80))
    with pytest.raises(RuntimeError, match=closed):
        client.attach("any").read()
    async with AsyncClient(data=lab.data) as other:
        with pytest.raises(RuntimeError, match=closed):
            str(other.forward("any", 80))
        with pytest.raises(RuntimeError, match=closed):
            await other.attach("any").read()


def test_a_terminal_for_python_that_is_not_there_is_refused(
    client: Client, running: Callable[..., str]
) -> None:
    job = running("sleep 1000")
    with client.attach(job) as terminal, pytest.raises(Unavailable, match="the job has no terminal"):
        terminal.read(timeout=20)


def test_python_loses_its_server(lab: ServerProcess, client: Client, running: Callable[..., str]) -> None:
    job = running("exec bash --norc", terminal=True)
    with client.attach(job) as terminal:
        printed(terminal, rb"[$#] ")
        lab.kill()
        with pytest.raises(Unreachable, match="the job goes on: attach to it again"):
            list(terminal)
    lab.up()


def test_a_command_in_a_terminal_ends_with_its_client(
    lab: ServerProcess, terminal: Callable[..., Terminal], running: Callable[..., str]
) -> None:
    job = running("sleep 1000")
    shell = terminal("exec", job, "--", "bash", "--norc")
    shell.until(r"[$#] ")
    shell.type("trap '' HUP; sleep 2000 & echo pids $$ $!\n")
    pids = [int(pid) for pid in shell.until(r"pids (\d+) (\d+)\r").groups()]
    assert all(map(alive, pids))
    shell.process.kill()
    wait_until(lambda: not any(map(alive, pids)), "the end of the shell and its children")
    quiet = lab.start("exec", job, "--", "sleep", "3000")
    pid = wait_until(
        lambda: next((pid for pid in lab.tasks() if b"3000" in Path(f"/proc/{pid}/cmdline").read_bytes()), 0),
        "it",
    )
    quiet.kill()
    quiet.communicate()
    wait_until(lambda: not alive(pid), "the end of the command")


def test_a_command_that_does_not_read_its_input_ends_with_its_client(
    lab: ServerProcess, running: Callable[..., str]
) -> None:
    job = running("sleep 1000")
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        deaf = lab.start("exec", job, "--", "sleep", "3500", stdin=endless.stdout)
        pid = wait_until(
            lambda: next(
                (pid for pid in lab.tasks() if b"3500" in Path(f"/proc/{pid}/cmdline").read_bytes()), 0
            ),
            "it",
        )
        written: list[str] = []

        def stuck() -> bool:
            written.append(Path(f"/proc/{endless.pid}/io").read_text().split()[3])
            return len(written) > 10 and len(set(written[-10:])) == 1

        wait_until(stuck, "full buffers from end to end")
        deaf.kill()
        deaf.communicate()
        endless.kill()
    wait_until(lambda: not alive(pid), "the end of the command")


def test_sessions_end_with_their_task(
    lab: ServerProcess, client: Client, running: Callable[..., str]
) -> None:
    job = running("sleep 1000")
    beside = lab.start("exec", job, "--", "sleep", "4000")
    wait_until(
        lambda: [pid for pid in lab.tasks() if b"4000" in Path(f"/proc/{pid}/cmdline").read_bytes()], "it"
    )
    client.cancel(job)
    _, said = beside.communicate(timeout=20)
    assert beside.returncode in {2, 137}
    assert not [
        pid for pid in lab.tasks() if alive(pid) and b"4000" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ], said


SERVER = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"x" * 300000 + self.path.encode())
    def do_POST(self):
        data = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.end_headers(); self.wfile.write(b"%d" % len(data))
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
"""


def test_a_port_of_the_machine_is_a_port_here(lab: ServerProcess, client: Client) -> None:
    remote, local = free_ports(2)
    (lab.folder / "page.py").write_text(SERVER)
    [job] = client.submit(command=[sys.executable, "page.py", str(remote)], workdir=str(lab.folder))
    wait_until(lambda: _listens(remote), "the page")
    forward = lab.start("forward", job, f"{local}:{remote}")
    assert forward.stdout is not None
    assert forward.stdout.readline() == f"127.0.0.1:{local}\n"
    found: list[bytes] = []

    def ask(path: str) -> None:
        page = http.client.HTTPConnection("127.0.0.1", local, timeout=20)
        page.request("GET", path)
        found.append(page.getresponse().read()[300_000:])
        page.close()

    threads = [threading.Thread(target=ask, args=(f"/{number}",)) for number in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [b"/%d" % number for number in range(6)]
    page = http.client.HTTPConnection("127.0.0.1", local, timeout=20)
    page.request("POST", "/", body=bytes(2_000_000))
    assert page.getresponse().read() == b"2000000"
    page.close()
    client.cancel(job)
    _, said = forward.communicate(timeout=20)
    assert (forward.returncode, said) == (0, f"spill: {job} has ended (CANCELLED)\n")


def test_a_port_of_the_machine_is_a_port_for_python(
    lab: ServerProcess, client: Client, running: Callable[..., str]
) -> None:
    (remote,) = free_ports(1)
    (lab.folder / "page.py").write_text(SERVER)
    os.mkfifo(lab.folder / "go")
    job = running(f"read line < go; {sys.executable} page.py {remote}", workdir=str(lab.folder), name="page")
    with client.forward("page", remote) as page:
        assert page.failure.startswith(f"nothing listens on port {remote} of the task's machine")
        (lab.folder / "go").write_text("go\n")
        wait_until(lambda: _listens(remote), "the page")
        assert str(page) == f"127.0.0.1:{page.port}" == f"{page.host}:{page.port}"
        with urllib.request.urlopen(f"http://{page}/here") as answer:
            assert answer.read()[300_000:] == b"/here"
        with pytest.raises(OSError, match="in use"), client.forward(job, remote, local=page.port):
            pass
    with socket.socket() as probe:
        assert probe.connect_ex((page.host, page.port)) != 0, "it closes at the end of its block"
    client.cancel(job)
    client.wait(job, timeout=20)
    with pytest.raises(Refused, match="does not run"), client.forward(job, remote):
        pass


async def test_a_port_of_the_machine_is_a_port_for_asyncio(
    lab: ServerProcess, running: Callable[..., str]
) -> None:
    (remote,) = free_ports(1)
    (lab.folder / "page.py").write_text(SERVER)
    job = running(f"exec {sys.executable} page.py {remote}", workdir=str(lab.folder))
    wait_until(lambda: _listens(remote), "the page")
    async with AsyncClient(data=lab.data) as client, client.forward(job, remote) as page:
        async with httpx.AsyncClient() as browser:
            answers = await asyncio.gather(*[browser.get(f"http://{page}/{each}") for each in range(5)])
        assert [answer.content[300_000:] for answer in answers] == [b"/%d" % each for each in range(5)]


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_what_is_not_possible_is_told_in_one_line(
    lab: ServerProcess, client: Client, running: Callable[..., str], terminal: Callable[..., Terminal]
) -> None:
    job = running("sleep 1000")
    (nothing,) = free_ports(1)
    forward = lab.start("forward", job, f"0:{nothing}")
    assert forward.stderr is not None
    told = forward.stderr.readline()
    assert told.startswith(f"spill: nothing listens on port {nothing} of the task's machine")
    forward.send_signal(signal.SIGINT)
    forward.communicate(timeout=20)
    assert forward.returncode == 130
    without = terminal("attach", job)
    without.until("the job has no terminal; start one with `spill run --pty`")
    assert without.end() == 2
    assert lab.spill("attach", job).stderr.startswith("spill: `spill attach` needs a terminal")
    assert lab.spill("exec", job).stderr.startswith("spill: no command; write it after --")
    assert lab.spill("forward", job, "http").stderr.startswith("spill: 'http' is not a port; write 8888")
    client.submit(run="true", name="held", hold=True)
    assert lab.spill("exec", "held", "--", "true").stderr.endswith("does not run: it is HELD\n")
    client.cancel("held")


def test_only_those_who_may_change_the_job_get_in(
    lab: ServerProcess, client: Client, running: Callable[..., str]
) -> None:
    job = running("sleep 1000")
    for made in (client.create_token("read", user="bob"), client.create_token("submit", user="bob")):
        with Client(client.url, made.token) as bob, pytest.raises(Refused) as refused:
            bob.exec(job, ["true"])
        assert refused.value.status == 403
    assert "only" in str(refused.value)


def test_a_lost_agent_ends_a_session_with_one_line(lab: ServerProcess, running: Callable[..., str]) -> None:
    job = running("sleep 1000", retry={"lost": 0})
    beside = lab.start("exec", job, "--", "sleep", "5000")
    wait_until(
        lambda: [pid for pid in lab.tasks() if b"5000" in Path(f"/proc/{pid}/cmdline").read_bytes()], "it"
    )
    (agent,) = lab.agents()
    os.kill(agent, signal.SIGKILL)
    _, said = beside.communicate(timeout=60)
    assert (beside.returncode, said) == (2, "spill: the connection to agent n1 was lost\n")
    wait_until(
        lambda: not [pid for pid in lab.tasks() if b"5000" in Path(f"/proc/{pid}/cmdline").read_bytes()],
        "its end",
    )


def test_a_lost_server_ends_a_session_with_one_line(lab: ServerProcess, running: Callable[..., str]) -> None:
    job = running("sleep 1000")
    beside = lab.start("exec", job, "--", "sh", "-c", "echo begun; exec sleep 6000")
    assert beside.stdout is not None
    assert beside.stdout.readline() == "begun\n"
    lab.kill()
    _, said = beside.communicate(timeout=60)
    assert (beside.returncode, said) == (2, "spill: the connection was lost; the command was ended\n")
    wait_until(
        lambda: not [pid for pid in lab.tasks() if b"6000" in Path(f"/proc/{pid}/cmdline").read_bytes()],
        "its end",
    )
    lab.up()
