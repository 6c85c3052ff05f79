"""Inputs are packed as they were meant, and what comes back is written where it should be."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from spillover.client.blobs import Landing
from spillover.client.errors import Refused
from spillover.client.fetching import landed, plan
from spillover.client.packing import InputSizes, needs_packing, pack
from spillover.model.files import MOST_FILES
from spillover.ports.blobs import digest_of
from spillover.wire.api import FilesView, FileView

MOST = 1 << 30


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("data/b.csv", "data/a.csv", "data/deep/c.csv", "data/.hidden", "run.sh", "x[1].txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "latest").symlink_to("data")
    return tmp_path


def packed(work: Path, *inputs: Any) -> list[str]:
    """Where inputs go."""
    document = {"spec": {"workdir": str(work), "inputs": list(inputs)}}
    return [file["path"] for file in pack([document], MOST).documents[0]["spec"]["inputs"]]


@pytest.mark.parametrize(
    ("given", "there"),
    [
        ("data/*.csv", ["data/a.csv", "data/b.csv"]),
        ("data", ["data/.hidden", "data/a.csv", "data/b.csv", "data/deep/c.csv"]),
        ("data/", ["data/.hidden", "data/a.csv", "data/b.csv", "data/deep/c.csv"]),
        ("**/*.csv", ["data/a.csv", "data/b.csv", "data/deep/c.csv"]),
        ("data/.h*", ["data/.hidden"]),
        ("./data//a.csv", ["data/a.csv"]),
        ({"path": "data", "as": "./"}, [".hidden", "a.csv", "b.csv", "deep/c.csv"]),
        ({"path": "run.sh", "as": "./bin/tool"}, ["bin/tool"]),
        ("x[[]1].txt", ["x[1].txt"]),
        ("latest/a.csv", ["latest/a.csv"]),
        ({"path": "run.sh", "as": "bin/tool"}, ["bin/tool"]),
        ({"path": "run.sh", "as": "bin/"}, ["bin/run.sh"]),
        ({"path": "data/*.csv", "as": "in/"}, ["in/a.csv", "in/b.csv"]),
        ({"path": "data", "as": "in"}, ["in/.hidden", "in/a.csv", "in/b.csv", "in/deep/c.csv"]),
        ({"path": "**/*.csv", "as": "all/"}, ["all/data/a.csv", "all/data/b.csv", "all/data/deep/c.csv"]),
    ],
)
def test_what_an_entry_means(work: Path, given: Any, there: list[str]) -> None:
    assert packed(work, given) == there


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A working directory within a repository."""
    root = tmp_path / "project" / "part"
    files = {
        "../.git/HEAD": "",
        "../.gitignore": "*.pyc\nbuild/\n/part/data/\n",
        ".spillignore": "notes/\n!keep.pyc\n",
        "src/.gitignore": "local.py\n!x.pyc\n",
        **dict.fromkeys(("a.py", "a.pyc", "keep.pyc", ".env", "sub/.git", "sub/b.py"), ""),
        **dict.fromkeys(
            ("build/out", "data/big.csv", "notes/x", "src/m.py", "src/x.pyc", "src/local.py"), ""
        ),
        **dict.fromkeys(("src/.hidden", "src/build/deep", "src/data/small.csv"), ""),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize("given", [".", "**", "*", "lab"])
def test_the_data_folder_of_a_server_stays_behind(tmp_path: Path, given: str) -> None:
    data = tmp_path / "lab" / "spill-data"
    (data / "blobs").mkdir(parents=True)
    for path in (data / "token", data / "spill.db", tmp_path / "lab" / "a.csv"):
        path.write_text("x")
    assert packed(tmp_path, given) == ["lab/a.csv"]
    assert packed(tmp_path, "lab/spill-data") == ["lab/spill-data/spill.db", "lab/spill-data/token"]


@pytest.mark.parametrize(
    ("given", "there"),
    [
        (".", ["a.py", "keep.pyc", "src/data/small.csv", "src/m.py", "src/x.pyc", "sub/b.py"]),
        ("**", ["a.py", "keep.pyc", "src/data/small.csv", "src/m.py", "src/x.pyc", "sub/b.py"]),
        ("*", ["a.py", "a.pyc", "keep.pyc", "src/data/small.csv", "src/m.py", "src/x.pyc", "sub/b.py"]),
        ("./src", ["src/.gitignore", "src/.hidden", "src/data/small.csv", "src/m.py", "src/x.pyc"]),
        ("data", ["data/big.csv"]),
        ("data/*.csv", ["data/big.csv"]),
        ("build", ["build/out"]),
        ("sub", ["sub/b.py"]),
        ("sub/.git", ["sub/.git"]),
        ("a.pyc", ["a.pyc"]),
        ("notes/x", ["notes/x"]),
        (".env", [".env"]),
        ("*.pyc", ["a.pyc", "keep.pyc"]),
        ("**/*.pyc", ["a.pyc", "keep.pyc", "src/x.pyc"]),
    ],
)
def test_what_rule_files_leave_out_goes_only_if_it_is_named(
    project: Path, given: str, there: list[str]
) -> None:
    assert packed(project, given) == there


def test_a_folder_of_which_all_is_left_out_is_told(project: Path) -> None:
    (project / "src/.gitignore").write_text("*\n")
    with pytest.raises(Refused, match=r"'src' has only files in .* that \.gitignore or \.spillignore leave"):
        packed(project, "src")


def test_sizes_count_each_file_once(work: Path) -> None:
    documents: list[dict[str, Any]] = [
        {"spec": {"workdir": str(work), "inputs": ["data/*.csv"]}},
        {"spec": {"workdir": str(work), "inputs": ["data/a.csv"], "stdin": "run.sh"}},
    ]
    found = pack(documents, MOST)
    size = sum((work / name).stat().st_size for name in ("data/a.csv", "data/b.csv", "run.sh"))
    first = digest_of(work / "run.sh")
    assert found.told([first]) == InputSizes(3, size, (work / "run.sh").stat().st_size)


@pytest.mark.parametrize(
    ("given", "there"),
    [
        ("**", ["data/a.csv", "data/b.csv", "data/deep/c.csv", "run.sh", "x[1].txt"]),
        (
            "*",
            [
                "data/a.csv",
                "data/b.csv",
                "data/deep/c.csv",
                "latest/a.csv",
                "latest/b.csv",
                "latest/deep/c.csv",
                "run.sh",
                "x[1].txt",
            ],
        ),
        (".", ["data/a.csv", "data/b.csv", "data/deep/c.csv", "run.sh", "x[1].txt"]),
        ("data/**", ["data/a.csv", "data/b.csv", "data/deep/c.csv"]),
        ("**/c*", ["data/deep/c.csv"]),
        (".git", [".git/.lock", ".git/config"]),
        (".g*", [".git/config"]),
        (".git/**", [".git/config"]),
        (".env", [".env"]),
    ],
)
def test_a_pattern_sends_no_hidden_files_that_it_does_not_name(
    work: Path, given: str, there: list[str]
) -> None:
    for name in (".env", ".git/config", ".git/.lock", "data/deep/.cache/x"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(name)
    assert packed(work, given) == there


def test_each_file_is_named_by_its_bytes(work: Path) -> None:
    document = {"spec": {"workdir": str(work), "inputs": ["run.sh", "data/a.csv"]}, "other": 1}
    result = pack([document, {"spec": {"run": "true"}}], MOST)
    script, data = result.documents[0]["spec"]["inputs"]
    assert script == {
        "path": "run.sh",
        "digest": hashlib.sha256(b"run.sh").hexdigest(),
        "size": 6,
        "executable": True,
    }
    assert "executable" not in data
    assert result.sources[data["digest"]] == work / "data/a.csv"
    assert result.bytes_of(result.sources) == 6 + 10
    assert result.documents[0]["other"] == 1
    assert result.documents[1] == {"spec": {"run": "true"}}
    assert pack(result.documents, MOST).documents == result.documents
    assert [needs_packing(each) for each in (document, *result.documents)] == [True, False, False]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["none"], "'none' does not exist in"),
        (["*.none"], "matches no file"),
        (["run.sh", {"path": "data/a.csv", "as": "run.sh"}], "'run.sh' would be written twice"),
        (["run.sh", {"path": "data/a.csv", "as": "run.sh/a"}], "'run.sh' would be written twice"),
        (["../run.sh"], "leads out of the folder"),
        ([{"path": "run.sh", "as": "/bin/sh"}], "is absolute"),
    ],
)
def test_what_cannot_be_packed_is_told(work: Path, given: list[Any], said: str) -> None:
    with pytest.raises(Refused, match=said):
        packed(work, *given)


def test_all_problems_of_all_jobs_are_told_at_once(work: Path) -> None:
    documents = [{"spec": {"workdir": str(work), "inputs": ["x", "y"]}}] * 2
    with pytest.raises(Refused) as refused:
        pack(documents, MOST)
    assert [problem.path for problem in refused.value.problems] == [
        "jobs[0].spec.inputs[0]",
        "jobs[0].spec.inputs[1]",
        "jobs[1].spec.inputs[0]",
        "jobs[1].spec.inputs[1]",
    ]


def test_too_much_is_refused_by_name(work: Path) -> None:
    document = {"spec": {"workdir": str(work), "inputs": ["data/*.csv", "run.sh"]}}
    with pytest.raises(Refused, match=r"data/b\.csv \(10\) makes the inputs 20; the maximum is 15"):
        pack([document], 15)
    many = work / "many"
    many.mkdir()
    for at in range(MOST_FILES + 1):
        (many / str(at)).touch()
    with pytest.raises(Refused, match="'many' matches more than 5,000 files"):
        packed(work, "many")


def test_a_file_that_cannot_be_read_is_told(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Path) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("spillover.client.packing.digest_of", failing)
    with pytest.raises(Refused, match=r"run\.sh: Permission denied"):
        packed(work, "run.sh")


def test_standard_input_may_be_anywhere_on_this_machine(work: Path) -> None:
    document = {"spec": {"workdir": str(work / "data"), "stdin": "../run.sh"}}
    assert needs_packing(document)
    found = pack([document], MOST)
    digest = digest_of(work / "run.sh")
    assert found.documents[0]["spec"]["stdin"] == {"path": "run.sh", "digest": digest, "size": 6}
    assert found.sources == {digest: work / "data/../run.sh"}
    assert not needs_packing(found.documents[0])


@pytest.mark.parametrize(
    ("given", "said"),
    [("none", "No such file"), ("data", "is not a file"), ("run.sh", "the maximum is 5 (files.max_inputs")],
)
def test_standard_input_that_cannot_be_sent_is_told(work: Path, given: str, said: str) -> None:
    with pytest.raises(Refused, match=r"spec\.stdin: ") as refused:
        pack([{"spec": {"workdir": str(work), "stdin": given}}], 5)
    assert said in str(refused.value)


def view(**contents: str) -> FilesView:
    files = [
        FileView(
            path.replace("__", "/"), hashlib.sha256(text.encode()).hexdigest(), len(text), path == "tool"
        )
        for path, text in contents.items()
    ]
    return FilesView("job", 1, [1], files)


def test_only_what_is_missing_or_differs_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "same").write_text("same")
    todo = plan(view(same="same", new="new", deep__new="deep"), tmp_path, force=False)
    assert [file.path for file in todo.wanted] == ["new", "deep/new"]
    assert todo.total == 7
    assert todo.path(todo.wanted[1]) == tmp_path / "deep" / "new"
    assert (tmp_path / "deep").is_dir()


def test_what_differs_is_written_over_by_force_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(Refused, match=r"mine would be overwritten; give another folder, or force=True$"):
        plan(view(mine="theirs"), tmp_path, force=False)
    assert [file.path for file in plan(view(mine="theirs"), tmp_path, force=True).wanted] == ["mine"]


@pytest.mark.parametrize("force", [False, True])
def test_links_and_folders_in_the_way_are_refused(tmp_path: Path, force: bool) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "file").write_text("")
    (root / "out").symlink_to(outside)
    (root / "link").symlink_to(outside / "new")
    for path, said in {
        "out__x": "is a link to outside",
        "link": "exists and is not a file",
        "folder": "exists and is not a file",
        "file__x": "exists and is not a folder",
    }.items():
        with pytest.raises(Refused, match=said):
            plan(view(**{path: "x"}), root, force=force)
    for path in ("../x", "/etc/x", "a/../../x"):
        with pytest.raises(Refused, match="the server sent the path"):
            plan(FilesView("job", 1, [1], [FileView(path, "0" * 64, 1, executable=False)]), root, force=force)


def test_a_program_may_be_run(tmp_path: Path) -> None:
    for name in ("tool", "data"):
        (tmp_path / name).write_text(name)
        landed(tmp_path / name, view(**{name: name}).files[0])
    assert (tmp_path / "tool").stat().st_mode & 0o111
    assert not (tmp_path / "data").stat().st_mode & 0o111
    assert digest_of(tmp_path / "tool") == digest_of(b"tool")


def test_what_cannot_be_written_is_named_as_it_was_meant(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error, Landing(tmp_path / "none" / "model.bin"):
        pass
    assert error.value.filename == str(tmp_path / "none" / "model.bin")
    (tmp_path / "taken").mkdir()
    with pytest.raises(IsADirectoryError) as told, Landing(tmp_path / "taken"):
        pass
    assert told.value.filename == str(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
