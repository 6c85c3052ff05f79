"""Bad input from the outside: exit 2, one clear line a problem, and nothing changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ServerProcess

GOOD = "apiVersion: spillover/v1\nkind: Job\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def job(spec: str, name: str = "x") -> str:
    return GOOD.format(spec=spec, name=name)


BOMB = (
    "a: &a [x, x, x, x, x, x, x, x, x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(8))
    + "spec: *i\n"
)

BAD: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "empty"),
    "not yaml": ("{: [", "YAML"),
    "yaml bomb": (BOMB, "alias"),
    "not utf-8": (b"\xff\xfe\x00name", "UTF-8"),
    "a list": ("- 1\n- 2\n", "list"),
    "unknown field": (job("run: 'true', waltime: 1h"), "did you mean `walltime`"),
    "wrong type": (job("run: [1, 2]"), "spec.run"),
    "negative cpu": (job("run: 'true', resources: {cpu: -1}"), "spec.resources.cpu"),
    "zero cpu": (job("run: 'true', resources: {cpu: 0}"), "spec.resources.cpu"),
    "absurd memory": (job("run: 'true', resources: {memory: 9999999Pi}"), "spec.resources.memory"),
    "bad quantity": (job("run: 'true', resources: {memory: lots}"), "512Mi"),
    "bad duration": (job("run: 'true', walltime: soon"), "90s"),
    "missing command": (job("walltime: 1h"), "run"),
    "two kinds of work": (job("run: 'true', command: [ls]"), "command"),
    "bad array": (job("run: 'true', array: 9-1"), "array"),
    "bad name": (job("run: 'true'", name='"no/slash"'), "name"),
    "unknown after": (job("run: 'true', after: [nosuchjob]"), "nosuchjob"),
    "cycle": (
        job("run: 'true', after: [b]", name="a") + "---\n" + job("run: 'true', after: [a]", name="b"),
        "cycle",
    ),
    "deadline before start": (
        job("run: 'true', not_before: 2030-01-02T00:00:00Z, deadline: 2030-01-01T00:00:00Z"),
        "deadline",
    ),
}


JOB_AFTER = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: b}
spec:
  run: 'true'
  after:
  - nosuchjob
"""


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all cases: what is refused leaves it as it was."""
    folder = tmp_path_factory.mktemp("standing")
    ports = ("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--slots", "1")
    server = ServerProcess(folder, "--data", str(folder / "data"), *ports, data=folder / "data")
    try:
        yield server.up()
    finally:
        server.clear()


def assert_refused(server: ServerProcess, told: str, *words: str) -> None:
    done = server.spill(*words)
    assert done.returncode == 2, done
    assert told in done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert all(line.startswith("spill: ") for line in done.stderr.splitlines()), done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_with_a_line_that_says_why(
    case: str, standing: ServerProcess, tmp_path: Path
) -> None:
    text, told = BAD[case]
    path = tmp_path / "bad.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = standing.spill("ls", "--json").stdout
    assert_refused(standing, told, "submit", str(path))
    assert standing.spill("ls", "--json").stdout == before


def test_a_file_of_100_mb_is_refused_before_it_is_read(standing: ServerProcess, tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    assert_refused(standing, "MiB", "submit", str(path))


def test_all_problems_of_a_file_are_told_at_once_with_their_lines(
    standing: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(
        "apiVersion: spillover/v1\nkind: Job\nspec:\n  walltime: soon\n  resources: {cpu: -1}\n  wokdir: .\n"
    )
    done = standing.spill("submit", str(path))
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert [line.split(":")[2] for line in lines if "bad.yaml" in line][-3:] == ["4", "5", "6"], lines


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_what_is_found_out_later_is_told_with_file_and_line_too(
    standing: ServerProcess, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    (tmp_path / "fine.yaml").write_text(job("run: 'true'", name="fine"))
    path = tmp_path / "later.yaml"
    path.write_text(job("run: 'true'", name="a") + "---\n" + JOB_AFTER)
    done = standing.spill("submit", str(tmp_path / "fine.yaml"), str(path), *dry)
    line = path.read_text().splitlines().index("  - nosuchjob") + 1
    said = f"{path}:{line}: spec.after[0].job: b: there is no job 'nosuchjob'"
    assert (done.returncode, done.stderr.startswith(f"spill: {said}")) == (2, True), done
    assert done.stderr.count("\n") == 1


def test_inputs_that_are_not_there_are_told_with_file_and_line(
    standing: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "miss.yaml"
    path.write_text(
        "apiVersion: spillover/v1\nkind: Job\nmetadata: {name: a}\nspec:\n  run: 'true'\n  inputs:\n  - 'data/*.tsv'\n  - none\n"
    )
    done = standing.spill("submit", str(path))
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"spill: {path}:7: spec.inputs[0]: 'data/*.tsv' matches no file in ")
    assert second.startswith(f"spill: {path}:8: spec.inputs[1]: 'none' does not exist in ")
    script = tmp_path / "miss.sh"
    script.write_text("#!/bin/sh\n#SPILL --input none\ntrue\n")
    done = standing.spill("submit", str(script))
    assert done.stderr.startswith(f"spill: {script}:2: spec.inputs[0]: 'none' does not exist in ")


def test_the_same_key_with_another_body_is_refused(standing: ServerProcess, tmp_path: Path) -> None:
    first = standing.spill("run", "--key", "nightly", "--detach", "--", "true")
    again = standing.spill("run", "--key", "nightly", "--detach", "--", "true")
    assert first.stdout == again.stdout
    assert_refused(standing, "another job", "run", "--key", "nightly", "--detach", "--", "false")


def test_what_is_not_there_is_said(standing: ServerProcess) -> None:
    assert_refused(standing, "no job 'nosuchjob'", "show", "nosuchjob")
    assert_refused(standing, "nosuch.yaml", "submit", "nosuch.yaml")
    assert_refused(standing, "--cpu", "run", "--cpu", "many", "--", "true")
