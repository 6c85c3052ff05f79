"""What a job file means, and what is said of one that means nothing."""

from typing import Any

import msgspec
import pytest

from spillover.forms.jobs.reading import AfterRef, BadForm, JobForm, from_doc, read_job, read_jobs, to_doc
from spillover.model.job import (
    Argv,
    Burst,
    Container,
    On,
    PythonCall,
    Range,
    Retry,
    Shape,
    Shell,
    Terms,
)
from spillover.model.resources import Resources
from spillover.model.units import MINUTE, SECOND
from spillover.wire.jobfile import JobDoc


def doc(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "spillover/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def job(**spec: Any) -> JobForm:
    return read_job(doc({"run": "true"} | spec))


def refused(value: object) -> list[str]:
    with pytest.raises(BadForm) as error:
        read_job(value)
    assert all("\n" not in str(problem) for problem in error.value.problems)
    return [str(problem) for problem in error.value.problems]


def wrong(**spec: Any) -> str:
    (problem,) = refused(doc({"run": "true"} | spec))
    return problem


def a_manifest(**notes: str) -> dict[str, Any]:
    pod = {"containers": [{"image": "i"}]}
    return {"metadata": {"annotations": notes}, "spec": {"template": {"spec": pod}}}


EVERYTHING = b"""\
apiVersion: spillover/v1
kind: Job
metadata: {name: train, project: vision, labels: {team: cv}}
spec:
  run: python train.py --lr 0.1
  env: {OMP_NUM_THREADS: "4"}
  workdir: .
  tasks: 1
  resources: {cpu: 4, memory: 16Gi, gpu: 1}
  walltime: 2h
  estimate: 45m
  deadline: 2027-01-31T18:00:00Z
  not_before: 2027-01-30T00:00:00Z
  priority: 3
  queue: long
  burst: never
  max_cost: 5.00
  needs: [gpu:a100, arch:arm64]
  retry: {exit: 1, lost: 2}
  lost_after: 6m
  grace: 20s
  array: 1-100
  after: [{job: prepare, on: any}, other]
  key: nightly-2027-01-30
"""


def test_every_field_of_a_job_file_is_read() -> None:
    (form,) = read_jobs(EVERYTHING, "train.yaml", "/home/ada")
    spec = form.spec
    assert spec.work == Shell("python train.py --lr 0.1")
    assert (spec.name, spec.project, spec.queue, spec.priority) == ("train", "vision", "long", 3)
    assert spec.shape == Shape(
        Resources(4000, 2**34, 1), ("arch:arm64", "gpu:a100"), 1, Burst.NEVER, runs=("command",)
    )
    assert spec.terms == Terms(
        120 * MINUTE, 45 * MINUTE, 20 * SECOND, 6 * MINUTE, Retry(1, 2), max_cost=5_000_000
    )
    assert spec.labels == {"team": "cv"}
    assert spec.env == {"OMP_NUM_THREADS": "4"}
    assert spec.workdir == "/home/ada"
    assert spec.deadline == 1_801_418_400 * SECOND
    assert spec.not_before == 1_801_267_200 * SECOND
    assert spec.array == (Range(1, 100),)
    assert spec.after == ("prepare any", "other success")
    assert form.after == (AfterRef("prepare", On.ANY), AfterRef("other", On.SUCCESS))
    assert form.key == "nightly-2027-01-30"
    assert read_job(to_doc(form)) == form


@pytest.mark.parametrize("tasks", [2, "1..4"])
def test_an_array_of_gangs_is_an_array(tasks: object) -> None:
    spec = job(array="1-4%2", tasks=tasks).spec
    assert (spec.shape.is_gang, spec.array, spec.throttle) == (True, (Range(1, 4),), 2)


def test_what_is_left_out_has_a_default() -> None:
    form = job()
    assert form == from_doc(msgspec.convert(doc({"run": "true"}), JobDoc))
    assert form.spec.shape == Shape(Resources(1000, 0, 0), runs=("command",))
    assert form.spec.terms == Terms()
    assert (form.spec.name, form.spec.project, form.spec.queue, form.spec.workdir) == (
        "true",
        "default",
        "default",
        ".",
    )
    assert (form.after, form.key) == ((), None)


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"run": "python train.py"}, "python"),
        ({"run": "A=1 B=2 /usr/bin/env x"}, "env"),
        ({"run": "$(x) y"}, "x"),
        ({"run": "''"}, "job"),
        ({"command": ["/opt/My Tool/run_it.sh", "x"]}, "run_it.sh"),
        ({"command": ["x" * 100]}, "x" * 63),
        ({"python": {"call": "pack.age:Class.method"}}, "Class.method"),
        ({"container": {"image": "registry:5000/team/tool:1.2"}}, "tool"),
    ],
)
def test_a_job_without_a_name_is_called_after_its_command(spec: dict[str, Any], name: str) -> None:
    assert read_job(doc(spec)).spec.name == name


def test_each_kind_of_work_is_read_and_asks_for_what_it_needs() -> None:
    assert read_job(doc({"command": ["a", ""]})).spec.work == Argv(("a", ""))
    python = read_job(doc({"python": {"call": "m:f", "args": [1, {"a": None}]}})).spec
    assert python.work == PythonCall("m:f", (1, {"a": None}))
    assert python.shape.needs == ("python",)
    container = read_job(doc({"container": {"image": "i", "command": ["c"]}, "needs": ["gpu:a100"]})).spec
    assert container.work == Container("i", ("c",))
    assert container.shape.needs == ("container", "gpu:a100")


def test_work_is_needed_and_one_kind_of_it() -> None:
    assert refused(doc({})) == ["spec: has nothing to run; add `run`, `command`, `python` or `container`"]
    assert wrong(command=["x"]) == "spec.command: `run` and `command` exclude each other; keep one"
    assert wrong(run=" ") == "spec.run: is empty; write a command"
    assert refused(doc({"command": []})) == ["spec.command: is empty; write a command"]
    assert "module:function" in refused(doc({"python": {"call": "os.system"}}))[0]


@pytest.mark.parametrize(
    ("workdir", "directory", "where"),
    [
        (None, "/d", "/d"),
        (".", "/d", "/d"),
        ("a/b", "/d", "/d/a/b"),
        ("/x", "/d", "/x"),
        ("a", None, "a"),
        (None, None, "."),
    ],
)
def test_a_folder_is_seen_from_where_the_person_is(
    workdir: str | None, directory: str | None, where: str
) -> None:
    assert read_job(doc({"run": "x", "workdir": workdir}), directory=directory).spec.workdir == where


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"cpu": -1}, "cpu: -1 is not a number of CPUs; write 2, 1.5 or 500m"),
        ({"cpu": 0}, "cpu: 0 is out of range; write 0.001 or more"),
        ({"cpu": 0.0001}, "cpu: 0.0001 is finer than a thousandth of a CPU"),
        ({"cpu": 10**7}, "cpu: 10000000 is out of range; the maximum is 1000000"),
        ({"cpu": 1e300}, "cpu: 1e+300 is not a number of CPUs; write 2, 1.5 or 500m"),
        (
            {"cpu": 10**400},
            "cpu: a number of more than 38 digits is not a number of CPUs; write 2, 1.5 or 500m",
        ),
        ({"memory": 0}, "memory: 0 is out of range; write more than 0, or remove the field"),
        ({"memory": "1Ei"}, "memory: '1Ei' is out of range; it must be less than 1Ei"),
        ({"gpu": -1}, "gpu: -1 is too small; the minimum is 0"),
        ({"gpu": 1.5}, "gpu: must be a whole number, found 1.5"),
        ({"gpu": 10**6}, "gpu: 1000000 is too large; the maximum is 100000"),
        ({"cpus": 1}, "cpus: unknown field; did you mean `cpu`?"),
        ({"cpu": True}, "cpu: must be text or a whole number or a number, found true"),
    ],
)
def test_absurd_resources_are_refused(resources: dict[str, Any], message: str) -> None:
    problem = wrong(resources=resources)
    assert problem.startswith(f"spec.resources.{message}")


def test_a_job_may_ask_for_a_gpu_and_no_cpu() -> None:
    assert job(resources={"cpu": 0, "gpu": 1}).spec.shape.resources == Resources(0, 0, 1)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("walltime", "0s", "'0s' is out of range; it must be more than 0"),
        ("walltime", 3600, "3600 is not a duration; write 90s, 10m, 1h30m or 2d"),
        ("walltime", "11w100000d", "is out of range; the maximum is 3650d"),
        ("estimate", "-1s", "'-1s' is not a duration"),
        ("grace", "2d", "'2d' is out of range; the maximum is 1d"),
        ("lost_after", "0s", "must be more than 0"),
        ("deadline", "tomorrow", "'tomorrow' is not a time with a zone; write 2027-01-31T18:00:00Z"),
        ("deadline", "9999-01-01T00:00:00Z", "is not between the years 1970 and 2262"),
        ("not_before", 5, "must be text, found 5"),
        ("priority", 10**7, "10000000 is too large; the maximum is 1000000"),
        ("priority", "high", "must be a whole number, found the text 'high'"),
        ("max_cost", -1, "-1 is out of range; the minimum is 0"),
        ("max_cost", "much", "'much' is not an amount of money"),
        ("max_cost", 1e12, "out of range; the maximum is 1000000000"),
        ("tasks", 0, "0 is too small; the minimum is 1"),
        ("tasks", 10**6, "is too large; the maximum is 100000"),
        ("queue", "a b", "'a b' is not a valid name; write 1 to 63 letters"),
        ("burst", "maybe", "'maybe' must be always, auto or never"),
        ("burst", "alwayz", "did you mean `always`?"),
        ("array", "10-1", "'10-1' is in the wrong order; write 1-10"),
        ("array", "a-b", "'a-b' is not a range of indexes; write 1-100 or 1-10,20"),
        ("array", "", "'' is not a range of indexes"),
        ("array", "1-5,3", "contains index 3 twice"),
        ("array", "1-2000000", "has 2,000,000 members; the maximum is 1,000,000"),
        ("array", "0-1000000:2", "has more than 10,000 ranges"),
        ("array", "1-5:0", "has a step of 0"),
        ("array", "1-99999999999", "is too large; the maximum is 1000000000"),
        ("array", 10, "10 is ambiguous (an index, or a number of members); write 1-10"),
        ("key", "", "must not be empty"),
        ("key", "a\nb", "contains characters that cannot be printed"),
        ("workdir", "a\0b", "contains a NUL character"),
        ("run", "a\0b", "contains a NUL character"),
        ("run", "x" * 200_000, "has 200000 bytes; the maximum for one argument or variable is 131071"),
        ("run", "a\udcff", "is not UTF-8 text"),
        ("env", [], "must be a mapping, found a list"),
        ("env", {str(n): "" for n in range(1001)}, "has 1001 entries; the maximum is 1000"),
        ("walltim", "2h", "unknown field; did you mean `walltime`?"),
        ("resources", None, "must be a mapping, found nothing"),
    ],
)
def test_what_makes_no_sense_is_refused(field: str, value: object, message: str) -> None:
    problem = wrong(**{field: value})
    assert problem.startswith(f"spec.{field}: ")
    assert message in problem


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"env": {"A": 4}}, 'spec.env.A: must be text, found 4; write it in quotes: "4"'),
        (
            {"env": {"A=B": "x"}},
            "spec.env['A=B']: 'A=B' is not a valid variable name; write it without `=` and spaces",
        ),
        (
            {"env": {"": "x"}},
            "spec.env['']: '' is not a valid variable name; write it without `=` and spaces",
        ),
        (
            {"env": {"A B": "x"}},
            "spec.env['A B']: 'A B' is not a valid variable name; write it without `=` and spaces",
        ),
        (
            {"env": {"A\t": "x"}},
            "spec.env['A\\t']: 'A\\t' is not a valid variable name; write it without `=` and spaces",
        ),
        (
            {"env": {"A\0": "x"}},
            "spec.env['A\\x00']: 'A\\x00' is not a valid variable name; write it without `=` and spaces",
        ),
        ({"env": {"A": "\0"}}, "spec.env.A: contains a NUL character"),
        ({"retry": {"exit": 1001}}, "spec.retry.exit: 1001 is too large; the maximum is 1000"),
        ({"needs": ["a b"]}, "spec.needs[0]: 'a b' is not a valid word; write 1 to 100 letters"),
        ({"after": [{"on": "any"}]}, "spec.after[0].job: is missing"),
        ({"after": ["a b"]}, "spec.after[0]: 'a b' is not a job name or id"),
        ({"after": ["a", {"job": "a"}]}, "spec.after[1]: lists 'a' twice; remove one"),
        ({"walltime": "1m", "estimate": "2m"}, "spec.estimate: '2m' is longer than the walltime"),
        (
            {"deadline": "2027-01-01T00:00:00Z", "not_before": "2027-01-01T00:00:00Z"},
            "spec.deadline: must be later than `not_before`",
        ),
    ],
)
def test_what_makes_no_sense_inside_or_together_is_refused(spec: dict[str, Any], problem: str) -> None:
    assert wrong(**spec).startswith(problem)


@pytest.mark.parametrize("name", ["", "a b", "-x", "x" * 64, "a/b", "é"])
def test_invalid_names_are_refused(name: str) -> None:
    assert refused(doc({"run": "x"}, name=name))[0].startswith("metadata.name: ")
    assert refused(doc({"run": "x"}, project=name))[0].startswith("metadata.project: ")


def test_labels_are_short_and_printable() -> None:
    assert len(refused(doc({"run": "x"}, labels={"": "x", "a": "\n"}))) == 2


@pytest.mark.parametrize(
    "value",
    [
        None,
        4,
        "text",
        [],
        {},
        {"apiVersion": "spillover/v2", "kind": "Job", "spec": {"run": "x"}},
        {"kind": "Job"},
    ],
)
def test_what_is_no_job_at_all_is_refused(value: object) -> None:
    assert refused(value)


def test_arguments_of_a_call_are_plain_data_of_bounded_depth() -> None:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    for args in ([deep], [float("nan")], [2**64], [{1: 2}], [object()], ["\ud800"]):
        assert refused(doc({"python": {"call": "m:f", "args": args}}))[0].startswith("spec.python.args")


@pytest.mark.parametrize("field", ["apiVersion", "kind", "spec", "metadata"])
@pytest.mark.parametrize("version", ["spillover/v1", "batch/v1"])
def test_values_of_any_depth_are_refused_in_one_line(field: str, version: str) -> None:
    deep = msgspec.json.decode(b"[" * 500 + b"]" * 500)
    value = {"apiVersion": version, "kind": "Job", "spec": {"run": "x"}} | {field: [deep] * 10_000}
    assert all(len(problem) < 300 for problem in refused(value))


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("7", [(7, 7)]),
        ("1-10,20,30-40", [(1, 10), (20, 20), (30, 40)]),
        ("30-40, 1-10", [(1, 10), (30, 40)]),
        ("1-5,6-10", [(1, 10)]),
        ("0-6:3", [(0, 0), (3, 3), (6, 6)]),
        ("1-1000000", [(1, 1_000_000)]),
    ],
)
def test_the_indexes_of_an_array_are_sorted_and_joined(text: str, ranges: list[tuple[int, int]]) -> None:
    form = job(array=text)
    assert [(one.first, one.last) for one in form.spec.array] == ranges
    assert read_job(to_doc(form)) == form


def test_all_problems_of_a_file_are_told_with_their_lines() -> None:
    text = b"""\
apiVersion: spillover/v1
kind: Job
metadata: {nmae: x}
spec:
  comand: [a]
  resources: {cpu: -1, memory: 2Qi}
  after: [{on: any}, "a b"]
  waltime: 2h
---
apiVersion: spillover/v1
kind: Jobs
spec:
  run: x
  run: y
  array: 9-1
"""
    with pytest.raises(BadForm) as error:
        read_jobs(text, "bad.yaml", "/d")
    assert str(error.value).splitlines() == [
        "bad.yaml:3: metadata.nmae: unknown field; did you mean `name`?",
        "bad.yaml:5: spec.comand: unknown field; did you mean `command`?",
        "bad.yaml:6: spec.resources.cpu: -1 is not a number of CPUs; write 2, 1.5 or 500m",
        "bad.yaml:6: spec.resources.memory: '2Qi' is not an amount of memory; write 512Mi, 2Gi, 2G or a number of bytes",
        "bad.yaml:7: spec.after[0].job: is missing",
        "bad.yaml:7: spec.after[1]: 'a b' is not a job name or id",
        "bad.yaml:8: spec.waltime: unknown field; did you mean `walltime`?",
        "bad.yaml:11: kind: 'Jobs' must be Job",
        "bad.yaml:14: spec.run: is defined twice, in lines 13 and 14; remove one",
        "bad.yaml:15: spec.array: '9-1' is in the wrong order; write 1-9",
    ]


def test_a_decoded_document_tells_all_of_its_problems_too() -> None:
    decoded = msgspec.json.decode(
        msgspec.json.encode(doc({"run": "", "array": "x", "walltime": "0s"})), type=JobDoc
    )
    with pytest.raises(BadForm) as error:
        from_doc(decoded)
    assert [problem.path for problem in error.value.problems] == ["spec.run", "spec.walltime", "spec.array"]


def test_a_spec_alone_is_written_without_its_key() -> None:
    (form,) = read_jobs(EVERYTHING, "train.yaml")
    assert "key" not in to_doc(form.spec)["spec"]
    assert to_doc(job())["spec"] == {
        "run": "true",
        "workdir": ".",
        "resources": {"cpu": 1},
        "queue": "default",
    }


@pytest.mark.parametrize(
    "spec",
    [
        {"run": "true", "env": {f"V{at}": "x" * 100_000 for at in range(12)}},
        {"command": ["echo", *("x" * 100_000 for _ in range(12))]},
        {"python": {"call": "m:f", "args": ["x" * 1_200_000]}},
        {"container": {"image": "i", "manifest": a_manifest(data="x" * 1_200_000)}},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_a_job_is_small_enough_to_be_sent_around(spec: dict[str, Any]) -> None:
    told = "spec: the job has 1.2 MiB; the maximum is 1 MiB; put data in files"
    assert refused(doc(spec)) == [told]
    with pytest.raises(BadForm, match="the maximum is 1 MiB; put data in files"):
        from_doc(msgspec.convert(doc(spec), JobDoc))


def test_a_job_just_above_the_bound_does_not_read_as_being_within_it() -> None:
    env = {f"V{at}": "x" * 131_000 for at in range(8)}
    assert job(env=env).spec.env == env
    assert wrong(env=env | {"W": "x" * 600}) == (
        "spec: the job has 1.1 MiB; the maximum is 1 MiB; put data in files"
    )


def test_bytes_that_are_not_base64_are_told() -> None:
    call = {"function": "0" * 64, "arguments": "%%%"}
    assert refused(doc({"python": call})) == ["spec.python.arguments: '%%%' is not valid Base64"]
    assert refused(doc({"python": call | {"arguments": 3}})) == [
        "spec.python.arguments: must be Base64 text, found 3"
    ]


@pytest.mark.parametrize("image", ["--privileged", "-v/:/host", "a b"])
def test_an_image_is_no_option_of_an_engine(image: str) -> None:
    (problem,) = refused(doc({"container": {"image": image, "command": ["sh", "alpine"]}}))
    assert problem == f"spec.container.image: {image!r} is not a valid image name"
