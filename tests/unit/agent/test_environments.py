"""Python environments of an agent: its own by name, and those that it builds."""

import asyncio
import os
import subprocess
import sys
import threading
import venv
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from spillover.agent.files import task_folders
from spillover.agent.tasks import environments
from spillover.agent.tasks.environments import Environments, PythonEnvironment, Unbuilt
from spillover.core.events import Lease
from spillover.model.admission import REQUIREMENTS
from spillover.model.ids import JobId
from spillover.model.job import Environment
from tests.support.wheels import a_wheel, pylock, requirements, wheel_of

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def lease(job: str) -> Lease:
    return Lease(JobId(job), 1, 1)


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Environments]:
    agent = Environments(tmp_path / "agent", "", {}, 1 << 30)
    await agent.open()
    yield agent
    await agent.close()


@pytest.fixture
def needs(tmp_path: Path) -> Environment:
    a_wheel(tmp_path / "wheels", "tiny", "answer = 42")
    return Environment("", "r.txt", requirements(tmp_path / "wheels", "tiny"))


def said_by(found: PythonEnvironment, code: str) -> str:
    return subprocess.run([found.python, "-c", code], capture_output=True, check=True, text=True).stdout


@pytest.mark.slow
async def test_an_environment_is_built_once_for_all_and_kept_over_restarts(
    agent: Environments, needs: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds: list[tuple[str, ...]] = []
    run = environments._run

    async def counted(words: tuple[str, ...], folder: Path, said: Path) -> int:
        builds.append(words)
        return await run(words, folder, said)

    monkeypatch.setattr(environments, "_run", counted)
    first, second = await asyncio.gather(agent.take(lease("a"), needs), agent.take(lease("b"), needs))
    assert first == second
    assert len(builds) == 2, "one to create it, one to install"
    assert said_by(first, "import tiny; print(tiny.answer)") == "42\n"
    again = Environments(tmp_path / "agent", "", {}, 1 << 30)
    await again.open()
    assert await again.take(lease("c"), needs) == first
    assert len(builds) == 2
    bin_folder = str(Path(first.python).parent)
    assert first.variables({"PATH": "/x"}) == {"PATH": f"{bin_folder}:/x", "VIRTUAL_ENV": first.folder}


@pytest.mark.slow
async def test_a_build_that_fails_says_why_in_the_words_of_the_installer(
    agent: Environments, tmp_path: Path
) -> None:
    asked = Environment("", "r.txt", requirements(tmp_path, "there-is-no-such-package"))
    with pytest.raises(Unbuilt, match=r"^cannot build its environment: .*there-is-no-such-package"):
        await agent.take(lease("ab"), asked)
    said = (tmp_path / "agent" / "output" / "ab" / "ab.1.0.err").read_text()
    assert "there-is-no-such-package" in said
    assert [path.suffix for path in (tmp_path / "agent" / "environments").iterdir()] == [".log"]


@pytest.fixture
def locked(tmp_path: Path) -> Environment:
    return Environment("", "sub/pylock.toml", pylock(a_wheel(tmp_path / "wheels", "tiny", "answer = 42")))


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


async def an_agent(tmp_path: Path) -> Environments:
    agent = Environments(tmp_path / "agent", "", {}, 1 << 30)
    await agent.open()
    return agent


async def test_uv_builds_from_a_lock_file(
    locked: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    agent = await an_agent(tmp_path)
    built = await agent.take(lease("a"), locked)
    assert said_by(built, "import tiny; print(tiny.answer)") == "42\n"
    other = Environment("", "pylock.toml", (locked.text or "").replace('sha256 = "', 'sha256 = "0')[:-1])
    with pytest.raises(Unbuilt, match="cannot build its environment: "):
        await agent.take(lease("b"), other)
    await agent.close()


@pytest.mark.slow
async def test_pip_is_replaced_to_build_from_a_lock_file(
    agent: Environments, locked: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    told = r"^cannot build its environment: .*pip>=26\.1 \(a pylock\.toml needs pip 26\.1, or uv 0\.6\.15 on the PATH"
    with pytest.raises(Unbuilt, match=told):
        await agent.take(lease("a"), locked)
    wheel_of("pip", tmp_path / "index")
    found = await agent.take(lease("b"), locked)
    assert said_by(found, "import tiny; print(tiny.answer)") == "42\n"


@pytest.mark.slow
async def test_an_old_uv_does_not_build_from_a_lock_file(
    locked: Environment, needs: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel_of("pip", tmp_path / "index").parent))
    program(tmp_path / "bin", "uv", '[ "$1" = --version ] && echo "uv 0.6.14 (abc 2025-01-01)" || exit 3')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    agent = await an_agent(tmp_path)
    found = await agent.take(lease("a"), locked)
    assert said_by(found, "import tiny; print(tiny.answer)") == "42\n"
    with pytest.raises(Unbuilt, match=r"^cannot build its environment: it gave no reason$"):
        await agent.take(lease("b"), needs)  # a list is for uv, of any release
    await agent.close()


async def test_an_old_uv_without_venv_says_what_a_lock_file_needs(
    locked: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "spillover.agent.tasks.environments"
    monkeypatch.setattr(f"{module}.find_spec", lambda name: None if name == "ensurepip" else find_spec(name))
    script = '[ "$1" = --version ] && echo "uv 0.6.14" && exit\necho "error: Couldn\'t parse it"; exit 2'
    program(tmp_path / "bin", "uv", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    agent = await an_agent(tmp_path)
    with pytest.raises(Unbuilt, match=r"error: Couldn't parse it \(a pylock\.toml needs pip 26\.1, or uv"):
        await agent.take(lease("a"), locked)
    await agent.close()


async def test_a_build_that_takes_too_long_is_ended(
    agent: Environments, needs: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "LONGEST", 0.0)
    with pytest.raises(Unbuilt, match="took longer than 0s"):
        await agent.take(lease("a"), needs)


def built(folder: Path, name: str, size: int) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "spillover-built").write_text(f"{size}\n")


async def test_environments_that_nobody_uses_make_room_and_halves_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "environments"
    for name in ("first", "second"):
        built(folder, name, 600)
    (folder / "half").mkdir()
    agent = Environments(tmp_path, "", {}, 1000)
    await agent.open()
    assert [path.name for path in folder.iterdir()] == ["second"]
    agent._used[lease("a")] = "second"
    agent._sizes["third"] = 600
    await agent._make_room()
    assert (folder / "second").exists()
    assert list(agent._sizes) == ["second"]


async def test_an_environment_that_a_task_takes_while_another_is_deleted_stays(
    tmp_path: Path, needs: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Environments(tmp_path / "agent", "", {}, 1 << 30)
    await agent.open()
    wanted = await agent.take(lease("a"), needs)
    agent.leave(lease("a"))
    built(tmp_path / "agent" / "environments", "other", 600)
    agent._sizes = {"other": 600} | agent._sizes
    agent._bound = 0
    deleting, taken = threading.Event(), threading.Event()

    def slow(folder: Path) -> None:
        deleting.set()
        assert taken.wait(10)
        task_folders.remove_folder(folder)

    monkeypatch.setattr(environments, "remove_folder", slow)
    making = asyncio.create_task(agent._make_room())
    await asyncio.to_thread(deleting.wait)
    assert await agent.take(lease("b"), needs) == wanted
    taken.set()
    await making
    assert said_by(wanted, "import tiny; print(tiny.answer)") == "42\n"
    assert [path.name for path in (tmp_path / "agent" / "environments").iterdir()] == [
        Path(wanted.folder).name
    ]


async def test_named_environments_are_offered_with_their_version(tmp_path: Path) -> None:
    venv.create(tmp_path / "ml")
    named = {"ml": str(tmp_path / "ml"), "own": sys.executable, "gone": str(tmp_path / "gone")}
    agent = Environments(tmp_path / "agent", "", named, 0)
    offer = await agent.open()
    assert set(offer.words) == {
        *("environment:ml", f"environment:ml:{VERSION}"),
        *("environment:own", f"environment:own:{VERSION}"),
        "requirements",
    }
    assert offer.missing == {"environment:gone": f"{tmp_path}/gone cannot be run"}
    ml = await agent.take(lease("a"), Environment("ml"))
    assert ml.folder == str(tmp_path / "ml")
    assert "VIRTUAL_ENV" not in (await agent.take(lease("b"), Environment("own"))).variables({})
    with pytest.raises(Unbuilt, match="this agent has no environment gone"):
        await agent.take(lease("c"), Environment("gone"))


@pytest.mark.parametrize("lacking", ["", "ensurepip", "venv"])
async def test_whether_its_own_interpreter_makes_environments_is_known_without_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    started: list[str] = []

    async def refused(*words: str, **_: object) -> None:
        started.append(words[0])
        raise OSError("no process may start")

    module = "spillover.agent.tasks.environments"
    monkeypatch.setattr(f"{module}.find_spec", lambda name: None if name == lacking else find_spec(name))
    monkeypatch.setattr(f"{module}.shutil.which", lambda _: None)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", refused)
    offer = await Environments(tmp_path, "", {}, 0).open()
    assert (REQUIREMENTS in offer.words, REQUIREMENTS in offer.missing) == (not lacking, bool(lacking))
    assert started == []
