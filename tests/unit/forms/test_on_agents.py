"""Fields of a job that only agents can fulfil."""

from typing import Any

import pytest

from spillover.forms.jobs.on_agents import MOST_TEXT
from spillover.forms.jobs.reading import read_job
from spillover.forms.jobs.writing import to_doc
from spillover.forms.problems import BadForm
from spillover.model.job import Environment
from spillover.model.units import SECOND


def a_doc(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "true", **spec}}


def refused(**spec: Any) -> list[str]:
    with pytest.raises(BadForm) as caught:
        read_job(a_doc(**spec))
    return [f"{problem.path}: {problem.message}" for problem in caught.value.problems]


def test_a_job_may_want_a_signal_before_its_walltime() -> None:
    spec = read_job(a_doc(walltime="1h", signal_before="2m", signal="SIGUSR1")).spec
    assert (spec.signal, spec.signal_before) == ("USR1", 120 * SECOND)
    assert "signals" in spec.shape.runs, "only agents send it"
    assert read_job(to_doc(spec)).spec == spec
    term = read_job(a_doc(walltime="1h", signal_before="2m")).spec
    assert term.signal == "TERM"
    assert read_job(to_doc(term)).spec == term


def test_a_job_may_have_a_folder_that_outlives_attempts() -> None:
    spec = read_job(a_doc(keep_state=True)).spec
    assert (spec.keep_state, "state" in spec.shape.runs) == (True, True)
    assert read_job(to_doc(spec)).spec == spec
    assert "state" not in read_job(a_doc(keep_state=False)).spec.shape.runs


def test_a_job_may_name_an_environment_of_the_agent() -> None:
    spec = read_job(a_doc(environment={"name": "ml"})).spec
    assert spec.environment == Environment("ml")
    assert spec.shape.needs == ("environment:ml",)
    assert read_job(to_doc(spec)).spec == spec
    assert "needs" not in to_doc(spec)["spec"]


def test_a_job_may_have_one_built() -> None:
    spec = read_job(a_doc(environment={"requirements": "r.txt", "text": "numpy\n"})).spec
    assert spec.environment == Environment("", "r.txt", "numpy\n")
    assert spec.shape.needs == ("requirements",)
    assert read_job(to_doc(spec)).spec == spec
    unread = read_job(a_doc(environment={"requirements": "r.txt"})).spec
    assert read_job(to_doc(unread)).spec == unread


def test_an_environment_is_one_of_both_and_not_for_containers() -> None:
    one = ["spec.environment: needs one of `name`, `requirements` and `image`"]
    assert refused(environment={}) == one
    assert refused(environment={"name": "ml", "requirements": "r.txt"}) == one
    assert "'a b' is not" in refused(environment={"name": "a b"})[0]
    assert refused(environment={"name": "ml"}, run=None, container={"image": "x"}) == [
        "spec.environment: is not for containers; their image has the environment"
    ]
    assert refused(environment={"name": "ml", "text": "x"}) == [
        "spec.environment.text: is only allowed with `requirements`"
    ]
    large = {"requirements": "r.txt", "text": "\u00e4" * (MOST_TEXT // 2 + 1)}
    assert "the maximum is 262144" in refused(environment=large)[0]


def test_a_call_may_be_made_in_a_container() -> None:
    image = {"image": "docker.io/library/python:3.12"}
    spec = read_job(a_doc(environment=image, run=None, python={"call": "m:f"})).spec
    assert spec.environment == Environment(image=image["image"])
    assert spec.shape.needs == ("container:python",), "the interpreter of the agent does not matter"
    assert "python" in spec.shape.runs, "clusters of other kinds make no calls"
    assert read_job(to_doc(spec)).spec == spec
    assert "needs" not in to_doc(spec)["spec"]


def test_only_calls_of_one_task_are_made_in_a_container_of_an_image_that_has_a_name() -> None:
    where = "spec.environment.image"
    assert refused(environment={"image": "x"}) == [
        f"{where}: is only for `python`; for other work write `container` with `image` and `command`"
    ]
    call = {"run": None, "python": {"call": "m:f"}}
    assert refused(environment={"image": "x"}, tasks=2, **call) == [
        f"{where}: is not for gangs; a call in a container is one task"
    ]
    groups = [{"name": name, **call} for name in ("a", "b")]
    assert refused(environment={"image": "x"}, run=None, groups=groups) == [
        f"{where}: is not for gangs; a call in a container is one task"
    ]
    assert refused(environment={"image": "-x"}, **call) == [f"{where}: '-x' is not a valid image name"]
    assert refused(environment={"image": "x", "name": "ml"}, **call) == [
        "spec.environment: needs one of `name`, `requirements` and `image`"
    ]


def test_a_call_with_a_container_is_told_how_to_write_it() -> None:
    (told,) = refused(run=None, python={"call": "m:f"}, container={"image": "x"})
    assert told.startswith("spec.container: `python` and `container` exclude each other; ")
    assert told.endswith("a call is made in a container with `environment: {image: ...}`")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("uv.lock", "uv export --format requirements-txt"),
        ("poetry.lock", "poetry export"),
        ("pyproject.toml", "uv pip compile pyproject.toml"),
        ("environment.yml", "pip freeze"),
    ],
)
def test_a_lock_file_is_no_list_of_packages(name: str, command: str) -> None:
    (told,) = refused(environment={"requirements": name, "text": "x"})
    assert told.startswith(f"spec.environment.requirements: {name.rpartition('/')[2]!r} is not a list")
    assert command in told


@pytest.mark.parametrize("name", ["pylock.toml", "sub/pylock.toml", "pylock.dev.toml"])
def test_a_lock_file_of_the_standard_is_taken(name: str) -> None:
    asked = read_job(a_doc(environment={"requirements": name, "text": "x"})).spec.environment
    assert asked is not None
    assert asked.is_lock


def test_a_lock_file_that_installers_would_not_know_is_refused() -> None:
    (told,) = refused(environment={"requirements": "pylock.a.b.toml", "text": "x"})
    assert "call it pylock.toml or pylock.NAME.toml" in told


def test_a_signal_needs_a_walltime_that_is_longer() -> None:
    assert refused(signal_before="2m") == [
        "spec.signal_before: needs `walltime`: the signal comes that long before its end"
    ]
    assert refused(signal_before="2m", walltime="2m") == [
        "spec.signal_before: '2m' is not shorter than the walltime"
    ]
    assert refused(signal="USR1", walltime="2m") == [
        "spec.signal: needs `signal_before`: how long before the walltime it comes, as in 2m"
    ]
    assert "'KILL' is not a signal to send" in refused(signal="KILL", signal_before="1m", walltime="2m")[0]
