"""Whatever is written, it is read or refused; and what is read can be written and read again."""

from datetime import datetime
from itertools import pairwise
from typing import Any

import jsonschema
import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from spillover.config.read import read_config
from spillover.forms.jobs.arrays import format_array, parse_array
from spillover.forms.jobs.reading import BadForm, JobForm, from_doc, read_job, read_jobs, to_doc
from spillover.forms.schema import job_schema
from spillover.model.units import parse_duration, parse_memory, write_duration, write_memory
from spillover.wire.jobfile import JobDoc, Metadata, SpecDoc

VALIDATOR = jsonschema.Draft202012Validator(job_schema())
FIELDS = sorted(
    {*SpecDoc.__struct_fields__, *Metadata.__struct_fields__, "apiVersion", "kind", "spec", "metadata"}
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["spillover/v1", "batch/v1", "Job", "Config", "1-5", "2Gi", "10m", "2027-01-31T18:00:00Z"]
    )
)
keys = st.sampled_from(FIELDS) | st.text(max_size=8)
plain: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=20,
)
specs = st.dictionaries(keys, plain, max_size=6)

names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,10}[A-Za-z0-9])?", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
printable = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=10)
durations = st.integers(1, 3650 * 86_400 * 10**9).map(write_duration)
times = st.datetimes(datetime(1970, 1, 1), datetime(2261, 1, 1)).map(lambda when: when.isoformat() + "Z")  # noqa: DTZ001
data: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
works = st.one_of(
    st.fixed_dictionaries({"run": texts.filter(str.strip)}),
    st.fixed_dictionaries(
        {"command": st.lists(texts, min_size=1, max_size=4).filter(lambda words: bool(words[0]))}
    ),
    st.fixed_dictionaries(
        {"python": st.fixed_dictionaries({"call": st.just("a.b:c"), "args": st.lists(data, max_size=3)})}
    ),
    st.fixed_dictionaries(
        {"container": st.fixed_dictionaries({"image": names, "command": st.lists(texts, max_size=3)})}
    ),
)
optional: dict[str, st.SearchStrategy[Any]] = {
    "env": st.dictionaries(names, texts, max_size=3),
    "workdir": texts,
    "tasks": st.integers(1, 100_000),
    "resources": st.fixed_dictionaries(
        {"cpu": st.integers(1, 10**9).map(lambda milli: f"{milli}m")},
        optional={"memory": st.integers(1, 2**60 - 1), "gpu": st.integers(0, 100_000)},
    ),
    "walltime": durations,
    "deadline": times,
    "priority": st.integers(-(10**6), 10**6),
    "queue": names,
    "burst": st.sampled_from(["auto", "never", "always"]),
    "max_cost": st.integers(0, 10**15).map(lambda amount: amount / 10**6),
    "needs": st.lists(st.sampled_from(["gpu:a100", "arch:arm64", "container", "python"]), max_size=3),
    "retry": st.fixed_dictionaries({}, optional={"exit": st.integers(0, 1000), "lost": st.integers(0, 1000)}),
    "lost_after": st.sampled_from(["1s", "5m", "1d"]),
    "grace": st.sampled_from(["0s", "10s", "1500ms"]),
    "array": st.sampled_from(["1-5", "3", "9,1-2,4", "0-20:5"]),
    "after": st.lists(names, unique=True, max_size=3),
    "key": printable,
}


def _without_gangs(spec: dict[str, Any]) -> dict[str, Any]:
    """The same, but an array has one task in each member."""
    return spec | {"tasks": 1} if "array" in spec else spec


jobs = st.fixed_dictionaries(
    {
        "apiVersion": st.just("spillover/v1"),
        "kind": st.just("Job"),
        "spec": st.builds(
            lambda work, rest: work | _without_gangs(rest),
            works,
            st.fixed_dictionaries({}, optional=optional),
        ),
    },
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "name": names,
                "project": names,
                "labels": st.dictionaries(printable, printable, max_size=3),
            },
        )
    },
)


def one_line_each(error: BadForm) -> None:
    """Every problem is one line of bounded length."""
    assert error.problems
    for problem in error.problems:
        assert "\n" not in str(problem)
        assert len(str(problem)) < 3000


@given(st.binary(max_size=300))
@example(b"#!\n")
@example(b"#SPILL --\n")
@example(b"!!binary x: !!set {a}")
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    for read in (lambda: read_jobs(text, "x", "/d"), lambda: read_config(text, "x", policies=())):
        try:
            read()
        except BadForm as error:
            one_line_each(error)


@given(st.text(alphabet="ab:-[]{},&*!|>'\"#%@?~ \n\t01.e", max_size=80))
def test_any_yaml_like_text_is_read_or_refused(text: str) -> None:
    try:
        read_jobs(text, "x", "/d")
    except BadForm as error:
        one_line_each(error)


@given(
    st.lists(
        st.sampled_from(["#SPILL", "--cpu", "--env", "A=1", "=", "--", "--gpu=1", "'", '"', "\n", "#!", "x"])
    )
)
def test_any_script_is_read_or_refused(words: list[str]) -> None:
    try:
        read_jobs("#SPILL " + " ".join(words), "x", "/d")
    except BadForm as error:
        one_line_each(error)


@given(plain)
def test_any_value_is_read_or_refused(value: object) -> None:
    try:
        read_job(value)
    except BadForm as error:
        one_line_each(error)


@given(specs)
def test_any_spec_is_read_or_refused(spec: dict[str, Any]) -> None:
    for head in ({"apiVersion": "spillover/v1", "kind": "Job"}, {"apiVersion": "batch/v1", "kind": "Job"}):
        try:
            read_job({**head, "spec": {"run": "x"} | spec, "metadata": spec.get("metadata", {})})
        except BadForm as error:
            one_line_each(error)


@given(specs)
def test_any_setting_is_read_or_refused(settings: dict[str, Any]) -> None:
    text = msgspec.json.encode({"apiVersion": "spillover/v1", "kind": "Config"} | settings)
    try:
        read_config(text, "x", policies=())
    except BadForm as error:
        one_line_each(error)


@given(jobs)
@example({"apiVersion": "spillover/v1", "kind": "Job", "spec": {"run": "x", "max_cost": 52969324.985232}})
def test_what_is_read_reads_the_same_when_it_is_written_again(value: dict[str, Any]) -> None:
    form = read_job(value)
    again = to_doc(form)
    assert read_job(again) == form
    sent = msgspec.json.encode(again)
    assert same(from_doc(msgspec.json.decode(sent, type=JobDoc)), form)
    assert read_jobs(sent, "x")[0].spec.name == form.spec.name
    assert to_doc(read_job(again)) == again
    assert VALIDATOR.is_valid(again)


def same(one: JobForm, other: JobForm) -> bool:
    """Equal as they are stored."""
    return msgspec.msgpack.encode(one) == msgspec.msgpack.encode(other)


@given(st.integers(0, 2**62))
def test_written_quantities_read_as_the_same(amount: int) -> None:
    assert parse_duration(write_duration(amount)) == amount
    assert parse_memory(write_memory(amount)) == amount


@given(st.sets(st.integers(0, 300), min_size=1))
def test_the_indexes_of_an_array_are_those_that_were_written(indexes: set[int]) -> None:
    ranges = parse_array(",".join(str(index) for index in indexes))
    assert [index for one in ranges for index in range(one.first, one.last + 1)] == sorted(indexes)
    assert parse_array(format_array(ranges)) == ranges
    assert all(one.last + 1 < other.first for one, other in pairwise(ranges))
