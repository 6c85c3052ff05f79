"""What people give to `submit`."""

from datetime import timedelta
from pathlib import Path
from socket import gethostname
from typing import Any, cast

import pytest

from spillover.client.documents import documents
from spillover.client.errors import NoEffect, Refused
from spillover.client.gathering import Gathering
from spillover.client.handles import Call
from spillover.forms.jobs.reading import read_job

DOC: dict[str, Any] = {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true"}}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_fields_become_a_document(here: Path) -> None:
    (doc,) = documents(
        None,
        {
            "run": "echo hi",
            "cpu": 2,
            "memory": "1Gi",
            "name": "n",
            "walltime": timedelta(minutes=1),
            "env": {"A": "1"},
        },
    )
    assert doc == {
        "apiVersion": "spillover/v1",
        "kind": "Job",
        "metadata": {"name": "n"},
        "spec": {
            "run": "echo hi",
            "walltime": "60000000us",
            "env": {"A": "1"},
            "resources": {"cpu": 2, "memory": "1Gi"},
            "workdir": str(here),
        },
    }
    assert read_job(doc).spec.terms.walltime == 60 * 10**9


def test_calls_stand_for_their_jobs() -> None:
    call = Call[int](cast("Any", None), Gathering("aaaaaaaaaaaa", 3), 2)
    (doc,) = documents(None, {"run": "true", "inputs": [{"from": call, "path": "x"}], "after": [call]})
    assert doc["spec"]["inputs"] == [{"from": "aaaaaaaaaaaa.2", "path": "x"}]
    assert doc["spec"]["after"] == ["aaaaaaaaaaaa.2"]


def test_documents_run_where_they_were_submitted_and_are_not_changed(here: Path) -> None:
    relative = {**DOC, "spec": {"run": "true", "workdir": "sub"}}
    absolute = {**DOC, "spec": {"run": "true", "workdir": "/x"}}
    docs = documents([DOC, relative, absolute], {})
    assert [doc["spec"]["workdir"] for doc in docs] == [str(here), str(here / "sub"), "/x"]
    assert "workdir" not in DOC["spec"]


def test_what_is_not_a_document_is_left_to_the_server() -> None:
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "spec": {}}
    odd = {"spec": {"workdir": 7}}
    assert documents([manifest, {"spec": 3}, odd], {}) == [manifest, {"spec": 3}, odd]


def test_a_job_that_was_read_becomes_its_document(here: Path) -> None:
    form = read_job({**DOC, "spec": {"run": "true", "key": "k"}}, directory=str(here))
    (doc,) = documents(form, {})
    assert read_job(doc) == form


def test_a_file_gives_all_its_jobs(here: Path) -> None:
    file = here / "jobs.yaml"
    text = "apiVersion: spillover/v1\nkind: Job\nmetadata: {name: %s}\nspec: {run: 'true'}\n"
    file.write_text("---\n".join(text % name for name in ("a", "b")))
    assert [doc["metadata"]["name"] for doc in documents(file, {})] == ["a", "b"]


def test_all_problems_of_a_file_are_told_with_their_lines(here: Path) -> None:
    file = here / "jobs.yaml"
    file.write_text(
        "apiVersion: spillover/v1\nkind: Job\nspec:\n  run: 'true'\n  walltime: soon\n  cpus: 2\n"
    )
    with pytest.raises(Refused) as error:
        documents(file, {})
    assert error.value.kind == "invalid"
    assert [problem.path for problem in error.value.problems] == [f"{file}:5", f"{file}:6"]


def test_a_file_that_is_not_there_is_told(here: Path) -> None:
    with pytest.raises(Refused, match="cannot be read: No such file"):
        documents(here / "none.yaml", {})


@pytest.mark.parametrize("wrong", ["echo hi", [3], None])
def test_what_cannot_be_a_job_is_a_mistake_of_the_caller(wrong: Any) -> None:
    with pytest.raises(TypeError):
        documents(wrong, {})


def test_a_script_of_slurm_is_read_with_its_shell_and_warns(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    (here / "job.sbatch").write_text(
        "#!/bin/sh\n#SBATCH --export=COLOUR --qos=high --begin=now+1hour\ntrue\n"
    )
    with pytest.warns(UserWarning, match="job.sbatch:2: --qos: becomes the label `qos`"):
        (doc,) = documents(Path("job.sbatch"), {})
    assert doc["spec"]["env"] == {
        "COLOUR": "red",
        "SLURM_JOB_QOS": "high",
        "SLURM_SUBMIT_HOST": gethostname(),
        "SPILL_SRUN": "offered",
    }
    assert doc["spec"]["not_before"]


def test_lines_of_a_script_that_do_not_count_are_told(here: Path) -> None:
    script = here / "late.sh"
    script.write_text("#!/bin/sh\n#PBS -l walltime=1\n#BSUB -W 1\necho hi\n#SPILL --cpu 4\n")
    with pytest.warns(NoEffect) as told:
        documents(script, {})
    assert [str(each.message) for each in told] == [
        f"{script}:5: this #SPILL line comes after the first command and is ignored; move it to the top",
        f"{script}:2: #PBS lines are ignored; write `#SPILL --cpu 4 --walltime 2h` and the like",
        f"{script}:3: #BSUB lines are ignored; write `#SPILL --cpu 4 --walltime 2h` and the like",
    ]
