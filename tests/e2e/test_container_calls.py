"""Python calls in container images, on a real server, agent and engine."""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from spillover.client import CallCancelled, CallFailed
from spillover.client.calling import CallOptions
from tests.support.containers import IMAGE, ContainerEngine, missing
from tests.support.processes import ServerProcess, wait_until, write_config

_BIN = f"{sys.base_prefix}/bin"


@pytest.fixture(scope="module")
def lab() -> Iterator[ServerProcess]:
    """A server with one machine, whose containers can have the interpreter of the tests, without its packages."""
    if (why := missing()) is not None:
        pytest.skip(why)
    there = [path for path in ("/usr", "/lib", "/lib64", sys.base_prefix) if Path(path).exists()]
    # Sockets of an engine are below its folder, and their paths have 107 characters at the most.
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="e-") as place:
        folder = Path(place)
        engine = ContainerEngine(folder / "engine")
        engine.load()
        for name, value in engine.env.items():
            patch.setenv(name, value)
        agent = {"name": "n1", "cpu": 2, "memory": "1Gi", "engine": "podman"}
        agent["engine_options"] = [f"--volume={path}:{path}:ro" for path in there]
        clusters = [{"name": "onprem", "kind": "agents", "local": [agent]}]
        server = ServerProcess(folder, *write_config(folder, clusters=clusters))
        try:
            server.up()
            yield server
            assert engine.containers() == []
            assert not [*folder.glob("data/agents/*/container-calls/*")]
        finally:
            server.clear()
            engine.clear()


def options(lab: ServerProcess, **more: object) -> CallOptions:
    """Ask for the image, with the interpreter of the tests."""
    asked = {"environment": {"image": IMAGE}, "workdir": str(lab.folder), "env": {"PATH": f"{_BIN}:/bin"}}
    return {**asked, **more}  # type: ignore[typeddict-item] # tests give fields of all kinds


@pytest.fixture(autouse=True)
def functions_that_travel() -> None:
    for function in (looks, doubles, fails, sleeps, waits, naps, fills):
        function.__module__ = "__main__"


def looks(size: int, *, word: str) -> tuple[str, str, bool, str, int]:
    import cloudpickle  # type: ignore[import-untyped] # noqa: PLC0415 - the image does not have it

    sys.stdout.write("in the container\n")
    Path("made").write_text(word)
    return os.environ["SPILL_JOB_ID"], cloudpickle.__file__, os.getpid() == 1, "x" * size, sys.version_info[1]


def doubles(number: int) -> int:
    return 2 * number


def fails() -> None:
    raise LookupError("no such thing")


def sleeps() -> None:
    sys.stdout.write("sleeping\n")
    time.sleep(600)


def waits() -> str:
    told: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: told.append("saved"))
    until = time.monotonic() + 30
    while not told and time.monotonic() < until:
        time.sleep(0.05)
    return told[0]


def naps() -> str:
    time.sleep(7)
    return "not disturbed"


def fills() -> int:
    return len(bytearray(200 << 20))


def test_a_call_is_made_in_a_container_and_its_value_comes_back(lab: ServerProcess) -> None:
    with lab.client() as client:
        call = client.call(looks, 100_000, word="hello", options=options(lab))
        job, pickle, first, text, minor = call.result(timeout=60)
        assert (job, first, text, minor) == (call.job, False, "x" * 100_000, sys.version_info[1])
        assert pickle.startswith("/.spillover/")
        assert (lab.folder / "made").read_text() == "hello", "the folder of the caller is there"
        assert lab.spill("logs", call.job).stdout == "in the container\n"
        with pytest.raises(LookupError, match="no such thing"):
            client.call(fails, options=options(lab)).result(timeout=60)


def test_a_map_makes_each_call_in_a_container_of_its_own_and_passes_values_on(lab: ServerProcess) -> None:
    with lab.client() as client:
        runs = client.map(doubles, range(3), options=options(lab))
        total = client.call(sum, runs, options=options(lab))
        assert list(runs.results(timeout=120)) == [0, 2, 4]
        assert total.result(timeout=60) == 6


def test_a_call_in_a_container_is_cancelled_at_once(lab: ServerProcess) -> None:
    with lab.client() as client:
        call = client.call(sleeps, options=options(lab, grace="5m"))
        wait_until(lambda: "sleeping" in lab.spill("logs", call.job).stdout, "the call to run")
        call.cancel()
        with pytest.raises(CallCancelled):
            call.result(timeout=30)
        wait_until(lambda: client.job(call.job).state == "CANCELLED", "its container to end")


@pytest.mark.slow  # the signal must not come before the container has started
def test_a_call_in_a_container_gets_the_signal_before_its_walltime_if_it_handles_it(
    lab: ServerProcess,
) -> None:
    limits = {"walltime": "20s", "signal_before": "14s"}
    with lab.client() as client:
        knowing = client.call(waits, options=options(lab, **limits))
        unknowing = client.call(naps, options=options(lab, **limits))
        assert knowing.result(timeout=60) == "saved"
        assert unknowing.result(timeout=60) == "not disturbed"


def test_a_call_whose_image_is_missing_or_that_needs_more_memory_says_so(lab: ServerProcess) -> None:
    absent: CallOptions = {"environment": {"image": "localhost/no-such-image:1"}}
    with lab.client() as client:
        missing_image = client.call(doubles, 1, options=options(lab, **absent))
        starved = client.call(fills, options=options(lab, memory="64Mi"))
        with pytest.raises(CallFailed, match=r"podman could not run it: .*no-such-image"):
            missing_image.result(timeout=60)
        with pytest.raises(CallFailed, match="memory"):
            starved.result(timeout=60)


def test_an_image_without_python_is_named_with_the_words_of_the_engine(lab: ServerProcess) -> None:
    with lab.client() as client:
        call = client.call(doubles, 1, options=options(lab, env={}))
        with pytest.raises(CallFailed, match=r"python3.*not found.*; calls need an image with python3"):
            call.result(timeout=60)


def test_an_image_with_another_version_of_python_is_named(
    lab: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.client.calling.sys", SimpleNamespace(version_info=(3, 99)))
    ours = f"3.{sys.version_info[1]}"
    with lab.client() as client:
        call = client.call(doubles, 1, options=options(lab))
        told = (
            f"{IMAGE} has Python {ours}, but the function was pickled by 3.99; name an image with Python 3.99"
        )
        with pytest.raises(CallFailed, match=told):
            call.result(timeout=60)
