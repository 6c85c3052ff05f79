"""What a call gets in its container, and how what came of it is read."""

import marshal
import subprocess
import sys
from pathlib import Path

import pytest

from spillover.agent.leases.values import CallInImage, Exit
from spillover.agent.runners.contained import CALL, CODE, VALUE
from spillover.agent.runners.container_calls import ContainerCalls
from spillover.agent.runners.manifests import ContainerPlan, UnrunnableManifest
from spillover.model.job import EarlierValue, PythonCall
from spillover.wire.items import MAGIC
from tests.unit.agent.test_files import Shelf, opened

NAMED = CallInImage(PythonCall("m:f", (1, "a")), "python:3.12")
SAID = "podman could not run it: python3 was not found"
DONE, FAILED = Exit(7, code=0), Exit(7, code=3)


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def calls(tmp_path: Path, shelf: Shelf) -> ContainerCalls:
    calls = ContainerCalls(tmp_path / "calls", opened(tmp_path / "files", shelf))
    calls.open()
    return calls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the call `x`."""
    return tmp_path / "calls" / "x"


def mounts(plan: ContainerPlan) -> dict[str, str]:
    return {target: source for source, _, target in (each.partition(":") for each in plan.volumes)}


def is_there(path: Path) -> bool:
    return path.exists()


def run(code: str, *words: str) -> tuple[int, bytes]:
    done = subprocess.run([sys.executable, "-c", code, *words], check=False, capture_output=True)
    return done.returncode, done.stderr


async def ended(
    calls: ContainerCalls, end: Exit, work: CallInImage = NAMED, *, stopped: bool = False
) -> Exit:
    return await calls.outcome("x", work, end, stopped=stopped, said=SAID)


async def test_a_call_gets_its_function_items_and_earlier_values_as_files(
    calls: ContainerCalls, folder: Path, shelf: Shelf
) -> None:
    function, items, value = (shelf.add(data) for data in (MAGIC + b"3.12\nfunction", b"items", b"value"))
    earlier = (EarlierValue("", b"small"), EarlierValue("", b"", value))
    work = CallInImage(PythonCall("", (), function, b"arguments", items, 3, earlier), "python:3.12")
    plan = await calls.pack("x", "job.5", work)
    assert (plan.image, plan.entrypoint, plan.words[-1]) == ("python:3.12", "python3", "3.12")
    assert mounts(plan)[f"{CALL}:ro"] == str(folder / "call")
    assert mounts(plan)[VALUE] == str(folder / "value")
    assert {f"{CODE}/spillover:ro", f"{CODE}/cloudpickle:ro"} < mounts(plan).keys()
    asked = marshal.loads((folder / "call" / "asked").read_bytes())
    inside = [f"{CALL}/function", b"arguments", f"{CALL}/items", 3, [b"small", f"{CALL}/value-1"], 5]
    assert list(asked) == ["", b"[]", *inside]
    assert (folder / "call" / "value-1").read_bytes() == b"value"
    await calls.drop("x")
    assert not is_there(folder)


async def test_what_an_earlier_run_left_is_deleted(calls: ContainerCalls, folder: Path) -> None:
    await calls.pack("x", "job", NAMED)
    calls.open()
    assert not is_there(folder)


async def test_an_image_that_would_be_an_option_is_refused(calls: ContainerCalls) -> None:
    with pytest.raises(UnrunnableManifest, match="'--privileged' is not the name of an image"):
        await calls.pack("x", "job", CallInImage(NAMED.call, "--privileged"))


async def test_a_small_value_is_read_and_a_large_one_uploaded(
    calls: ContainerCalls, folder: Path, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.agent.runners.container_calls.INLINE", 100)
    await calls.pack("x", "job", NAMED)
    (folder / "value" / "version").write_text("3.12")
    (folder / "value" / "value").write_bytes(b"42")
    assert (await ended(calls, FAILED)).value == b"42"
    (folder / "value" / "value").write_bytes(b"x" * 101)
    end = await ended(calls, DONE)
    assert (end.value, end.code) == (b"", 0)
    assert shelf.blobs[end.value_digest] == b"x" * 101


async def test_a_call_without_a_value_says_how_its_container_ended(
    calls: ContainerCalls, folder: Path
) -> None:
    await calls.pack("x", "job", NAMED)
    (folder / "value" / "version").write_text("3.12")
    end = await ended(calls, FAILED)
    assert (end.code, end.message) == (
        3,
        "its container ended with exit code 3 before the call returned",
    )
    assert (await ended(calls, DONE)).code == 1
    assert await ended(calls, FAILED, stopped=True) == FAILED


async def test_an_image_without_a_python_that_can_make_the_call_is_named(
    calls: ContainerCalls, folder: Path
) -> None:
    await calls.pack("x", "job", NAMED)
    end = await ended(calls, FAILED)
    assert (end.spawned, end.message) == (False, f"{SAID}; calls need an image with python3")
    assert await ended(calls, FAILED, stopped=True) == FAILED
    (folder / "value" / "version").write_text("3.8")
    end = await ended(calls, FAILED)
    assert (end.spawned, end.message) == (False, "python:3.12 has Python 3.8; calls need 3.11 or later")


async def test_a_link_that_leads_out_of_the_container_is_no_value(
    calls: ContainerCalls, folder: Path, tmp_path: Path
) -> None:
    await calls.pack("x", "job", NAMED)
    (folder / "value" / "version").write_text("3.12")
    (tmp_path / "secret").write_text("hunter2")
    (folder / "value" / "value").symlink_to(tmp_path / "secret")
    end = await ended(calls, DONE)
    assert (end.code, end.value) == (1, b"")
    assert end.message == "cannot store the return value: value is not a file"


async def test_what_an_image_runs_first_says_its_version_and_stops_at_another(
    calls: ContainerCalls, tmp_path: Path
) -> None:
    plan = await calls.pack("x", "job", NAMED)
    code = plan.words[1].replace(VALUE, str(tmp_path))
    assert run(code, "3.99") == (1, b"")
    assert (tmp_path / "version").read_text() == f"3.{sys.version_info[1]}"
