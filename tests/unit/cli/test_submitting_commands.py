"""Commands that change something: submit, run, cancel, hold, release, requeue, set."""

import hashlib
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover.cli.following import exit_code
from spillover.client import Refused, Unavailable, Unreachable, WaitTimeout
from spillover.model.policy import Choice, PolicySet
from spillover.model.policy_options import IGNORE_PRIORITY
from spillover.policies import order
from spillover.policies.loading import BUILT_IN, load
from spillover.testing.builders import a_job as some_job
from spillover.testing.world import World
from spillover.wire.api import ArrayView, FieldProblem, Forecast

TWO_JOBS = """\
apiVersion: spillover/v1
kind: Job
metadata: {name: one}
spec: {run: echo 1}
---
apiVersion: spillover/v1
kind: Job
metadata: {name: two}
spec: {run: echo 2, resources: {cpu: 2}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def submitted(client: Any) -> list[dict[str, Any]]:
    [(what, documents)] = [asked for asked in client.asked if asked[0] in {"submit", "forecast"}]
    assert what in {"submit", "forecast"}
    return list(documents)


def test_several_documents_and_files_are_one_submission(
    client: Any, spill: Callable[..., Any], here: Path
) -> None:
    (here / "a.yaml").write_text(TWO_JOBS)
    (here / "b.sh").write_text("#!/bin/sh\n#SPILL --cpu 4 --walltime 2h\necho hi\n")
    assert spill("submit", "a.yaml", "b.sh") == (0, "000000000000\n000000000001\n000000000002\n", "")
    documents = submitted(client)
    assert [document["metadata"]["name"] for document in documents] == ["one", "two", "b.sh"]
    assert documents[2]["spec"]["resources"] == {"cpu": 4}
    assert {document["spec"]["workdir"] for document in documents} == {str(here)}


def test_a_dash_is_standard_input(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TWO_JOBS.encode())))
    assert json.loads(spill("submit", "-", "--json").out) == ["000000000000", "000000000001"]


def test_standard_input_cannot_be_read_twice(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("submit", "-", "-") == (
        2,
        "",
        "spill: - (standard input) is given twice; it can be read only once\n",
    )


def test_all_problems_of_all_files_are_told_and_nothing_is_sent(
    client: Any, spill: Callable[..., Any], here: Path
) -> None:
    (here / "good.yaml").write_text(TWO_JOBS)
    (here / "bad.yaml").write_text(
        TWO_JOBS.replace("resources: {cpu: 2}", "resources: {cpu: -2}, wallclock: 1h")
    )
    typed = spill("submit", "good.yaml", "bad.yaml", "missing.yaml")
    assert (typed.code, typed.out, client.asked) == (2, "", [])
    lines = typed.err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("spill: bad.yaml:9: spec.")
    assert lines[1].startswith("spill: bad.yaml:9: spec.")
    assert lines[2] == "spill: missing.yaml: No such file or directory"


def test_waiting_for_a_submission_tells_whether_it_succeeded(
    client: Any, spill: Callable[..., Any], here: Path, a_failed_job: Any, a_job: Any
) -> None:
    (here / "a.yaml").write_text(TWO_JOBS)
    assert spill("submit", "a.yaml", "--wait").code == 0
    client.known = [a_job(), a_failed_job(name="two")]
    typed = spill("submit", "a.yaml", "--wait")
    assert (typed.code, typed.out) == (1, "000000000000\n000000000001\n")
    assert typed.err == "spill: abcdefghijkl (two) is FAILED: exited with code 3\n"
    assert client.asked[-1] == ("wait", "000000000000", "000000000001", None)


def test_a_dry_run_prints_where_when_and_at_what_cost(
    client: Any, spill: Callable[..., Any], here: Path, a_reason: Any
) -> None:
    (here / "a.yaml").write_text(TWO_JOBS)
    past, future = "2026-01-31T10:00:00.000000Z", "2999-01-31T10:00:00.000000Z"
    client.forecasts = [
        Forecast("one", "onprem", "n1", past, a_reason(), 0.0, None, 3600.0),
        Forecast("two", None, None, future, a_reason("waits for 2 CPU"), 0.08, future, 3600.0),
        Forecast("three", None, None, None, a_reason("asks for 9 CPU", never=True), None, None, 3600.0),
        Forecast("four", None, None, None, a_reason("held by mira"), None, None, None),
    ]
    typed = spill("submit", "a.yaml", "--dry-run")
    assert (typed.code, typed.err) == (0, "")
    title, one, two, three, four = typed.out.splitlines()
    assert title.split() == ["NAME", "WHERE", "WHEN", "COST", "WHY"]
    assert one.split(maxsplit=4) == ["one", "onprem/n1", "now", "0.00", "owned capacity had room"]
    assert " 2999-01-31 10:00:00 UTC (in " in two
    assert three.split()[:4] == ["three", "-", "never", "-"]
    assert "not known" in four
    assert [asked[0] for asked in client.asked] == ["forecast"]
    assert len(json.loads(spill("submit", "a.yaml", "--dry-run", "--json").out)) == 4


def test_a_dry_run_tells_what_jobs_would_cost_if_they_were_rented(
    client: Any, spill: Callable[..., Any], here: Path, a_reason: Any
) -> None:
    (here / "a.yaml").write_text(TWO_JOBS)
    plain = Forecast("one", "onprem", "n1", None, a_reason(), 0.0, None, 3600.0, 0.08, 0.16)
    client.forecasts = [plain, Forecast("two", None, None, None, a_reason(), None, None, None)]
    title, one, two = spill("submit", "a.yaml", "--dry-run").out.splitlines()
    assert title.split() == ["NAME", "WHERE", "WHEN", "COST", "RENTED", "MOST", "WHY"]
    assert one.split()[4:7] == ["0.00", "0.0800", "0.1600"]
    assert two.split()[-7:-4] == ["-", "-", "-"]


def test_a_job_that_would_spill_over_in_a_moment_does_not_start_now(
    client: Any, spill: Callable[..., Any], here: Path, a_reason: Any
) -> None:
    (here / "a.yaml").write_text(TWO_JOBS)
    soon = "2026-01-31T10:00:00.000000Z"
    client.forecasts = [Forecast("one", "cloud", None, soon, a_reason("waits for 1 CPU"), 0.4, soon, 60.0)]
    _, one = spill("submit", "a.yaml", "--dry-run").out.splitlines()
    assert "2026-01-31 10:00:00 UTC (in 1s)" in one


def test_a_dry_run_has_nothing_to_wait_for(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("submit", "a.yaml", "--dry-run", "--wait").code == 2


def test_run_in_a_pipe_prints_the_id(client: Any, spill: Callable[..., Any], here: Path) -> None:
    typed = spill("run", "--cpu", "2", "--memory", "1Gi", "--walltime", "10m", "--", "python", "-c", "--wait")
    assert typed == (0, "000000000000\n", "")
    [document] = submitted(client)
    assert document["spec"]["command"] == ["python", "-c", "--wait"]
    assert document["spec"]["resources"] == {"cpu": 2, "memory": "1Gi"}
    assert document["spec"]["workdir"] == str(here)
    assert "env" not in document["spec"]


def test_run_needs_no_dashes_before_its_command(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("run", "--detach", "echo", "--json", "--", "x").code == 0
    assert submitted(client)[0]["spec"]["command"] == ["echo", "--json", "--", "x"]


def test_run_copies_only_the_variables_that_are_named(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "a=b")
    assert spill("run", "--env", "MINE", "--env", "OTHER=", "--", "env").code == 0
    assert submitted(client)[0]["spec"]["env"] == {"MINE": "a=b", "OTHER": ""}


def test_run_refuses_to_copy_a_variable_that_is_not_set(client: Any, spill: Callable[..., Any]) -> None:
    typed = spill("run", "--env", "NOT_SET_ANYWHERE", "--", "env")
    assert (typed.code, client.asked) == (2, [])
    assert (
        typed.err
        == "spill: --env: 'NOT_SET_ANYWHERE' is not set in this shell; write NOT_SET_ANYWHERE=VALUE\n"
    )


def test_run_without_a_command_is_refused(client: Any, spill: Callable[..., Any]) -> None:
    for arguments in ((), ("--",), ("--cpu", "2")):
        typed = spill("run", *arguments)
        assert (typed.code, client.asked) == (2, [])
        assert "spill: no command; write it after --" in typed.err


def test_what_follows_the_program_is_its_own(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("run", "--detach", "git", "checkout", "--", "notes.txt").code == 0
    assert submitted(client)[0]["spec"]["command"] == ["git", "checkout", "--", "notes.txt"]


def test_run_names_every_wrong_flag(client: Any, spill: Callable[..., Any]) -> None:
    typed = spill("run", "--cpu", "zero", "--walltime", "soon", "--burst", "maybe", "--", "true")
    assert (typed.code, client.asked) == (2, [])
    flags = [line.split(":")[1].strip() for line in typed.err.splitlines()]
    assert sorted(flags) == ["--burst", "--cpu", "--walltime"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("A B=3", "'A B' is not a valid variable name"),
        (" =3", "' ' is not a valid variable name"),
        ("=3", "'=3' is not NAME=VALUE"),
        ("NOT_SET", "'NOT_SET' is not set in this shell; write NOT_SET=VALUE"),
        ("", "'' is not NAME=VALUE"),
    ],
)
def test_a_variable_without_a_proper_name_is_refused(
    client: Any, spill: Callable[..., Any], word: str, said: str
) -> None:
    typed = spill("run", "--env", word, "--", "true")
    assert (typed.code, client.asked) == (2, [])
    (line,) = typed.err.splitlines()
    assert line.startswith(f"spill: --env: {said}")


def test_run_prints_one_json_value(client: Any, spill: Callable[..., Any], a_reason: Any) -> None:
    assert json.loads(spill("run", "--json", "--detach", "--", "true").out) == "000000000000"
    client.forecasts = [Forecast("true", "onprem", "n1", None, a_reason(), 0.0, None, None)]
    assert json.loads(spill("run", "--dry-run", "--json", "--", "true").out)[0]["cluster"] == "onprem"
    assert spill("run", "--wait", "--json", "--", "true").code == 2


def test_run_streams_both_outputs_and_takes_over_the_exit_code(
    client: Any, spill: Callable[..., Any], a_failed_job: Any
) -> None:
    client.known = [a_failed_job()]
    client.output = {False: [b"to out\n"], True: [b"to err\n"]}
    assert spill("run", "--wait", "--", "sh", "-c", "...") == (3, "to out\n", "to err\n")


def test_run_streams_every_attempt_once(client: Any, spill: Callable[..., Any], a_job: Any) -> None:
    client.known = [a_job(attempt=2)]
    client.output = {False: [b"x\n"], True: []}
    assert spill("run", "--wait", "--", "flaky") == (0, "x\nx\n", "")
    asked = [
        how["attempt"]
        for what, _, how in (one for one in client.asked if one[0] == "logs")
        if not how["stderr"]
    ]
    assert asked == [1, 2]


def test_run_says_why_nothing_happens_yet(client: Any, spill: Callable[..., Any]) -> None:
    client.ends = [WaitTimeout(["000000000000"])]
    typed = spill("run", "--wait", "--", "true")
    assert typed == (0, "", "spill: train waits for 2 CPU on one machine of onprem.\n")


def test_the_first_ctrl_c_cancels_what_runs(
    client: Any, spill: Callable[..., Any], a_job: Any, a_reason: Any
) -> None:
    client.known = [
        a_job(state="CANCELLED", exit_code=None, signal=15, reason=a_reason("cancelled by mira", "cancelled"))
    ]
    client.ends = [KeyboardInterrupt()]
    typed = spill("run", "--wait", "--", "sleep", "60")
    assert (typed.code, typed.out) == (143, "")
    assert ("cancel", "000000000000") in client.asked
    assert "cancelling 000000000000; press Ctrl-C again" in typed.err
    assert "is CANCELLED: cancelled by mira" in typed.err


def test_no_request_can_be_interrupted_while_a_job_is_followed(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    where: dict[str, threading.Thread] = {}

    def noting(name: str, real: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            where[name] = threading.current_thread()
            return real(*args, **options)

        return noted

    for name in ("wait", "why", "cancel", "job", "logs"):
        monkeypatch.setattr(client, name, noting(name, getattr(client, name)))
    client.ends = [WaitTimeout(["000000000000"]), KeyboardInterrupt()]
    spill("run", "--wait", "--", "sleep", "60")
    assert set(where) == {"wait", "why", "cancel", "job", "logs"}
    assert threading.main_thread() not in where.values()


def test_a_second_ctrl_c_leaves_it(client: Any, spill: Callable[..., Any]) -> None:
    client.ends = [KeyboardInterrupt(), KeyboardInterrupt()]
    typed = spill("run", "--wait", "--", "sleep", "60")
    assert typed.code == 130
    assert "run `spill logs 000000000000 -f` to follow it again" in typed.err


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Unreachable("no server answers"), "was not cancelled and keeps running"),
        (Unreachable("it went away", sent=True), "may not have been cancelled"),
        (Unavailable("the disk is full"), "may not have been cancelled"),
    ],
)
def test_ctrl_c_without_a_server_says_that_the_job_goes_on(
    error: Exception,
    told: str,
    client: Any,
    spill: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: str) -> None:
        raise error

    monkeypatch.setattr(client, "cancel", fail)
    client.ends = [KeyboardInterrupt()]
    typed = spill("run", "--wait", "--", "sleep", "60")
    assert (typed.code, typed.out) == (130, "")
    assert typed.err.splitlines()[1:] == [
        f"spill: {error}",
        f"spill: 000000000000 {told}; run `spill cancel 000000000000` when the server answers again",
    ]


def test_a_second_ctrl_c_while_it_is_being_cancelled_leaves_open_whether_it_is(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "cancel", interrupted)
    client.ends = [KeyboardInterrupt()]
    typed = spill("run", "--wait", "--", "sleep", "60")
    assert (typed.code, typed.out) == (130, "")
    assert typed.err.splitlines()[1:] == [
        "spill: 000000000000 may not have been cancelled; run `spill cancel 000000000000` to make sure"
    ]


def test_an_array_is_waited_for_without_its_output(
    client: Any, spill: Callable[..., Any], a_job: Any
) -> None:
    client.known = [a_job(array=ArrayView(3, {"SUCCEEDED": 3}))]
    typed = spill("run", "--wait", "--array", "1-3", "--", "true")
    told = "000000000000 is an array; run `spill logs 000000000000.INDEX` for the output of a member"
    assert typed == (0, "", f"spill: {told}\n")
    assert not [one for one in client.asked if one[0] == "logs"]
    assert spill("run", "--detach", "--array", "1-3", "--", "true") == (0, "000000000000\n", "")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": "SUCCEEDED"}, 0),
        ({"state": "FAILED", "exit_code": 7}, 7),
        ({"state": "FAILED", "exit_code": None, "signal": 9}, 137),
        ({"state": "FAILED", "exit_code": None}, 1),
        ({"state": "FAILED", "exit_code": None, "started_at": None}, 125),
        ({"state": "FAILED", "exit_code": 127, "started_at": None}, 127),
        ({"state": "TIMED_OUT", "exit_code": None, "signal": 15}, 124),
        ({"state": "TIMED_OUT", "exit_code": None, "started_at": None}, 124),
        ({"state": "CANCELLED", "exit_code": None, "started_at": None}, 125),
        ({"state": "CANCELLED", "exit_code": None, "signal": 15}, 143),
        ({"state": "CANCELLED", "exit_code": 0}, 1),
        ({"state": "FAILED", "exit_code": None, "started_at": None, "array": ArrayView(3, {"FAILED": 1})}, 1),
    ],
)
def test_the_exit_code_of_run_says_how_the_job_ended(changes: dict[str, Any], code: int, a_job: Any) -> None:
    assert exit_code(a_job(**changes)) == code


def test_a_job_that_could_not_be_started_never_ran(a_failed_job: Any, a_reason: Any) -> None:
    assert exit_code(a_failed_job(exit_code=None, reason=a_reason("no such file", "could_not_start"))) == 125


@pytest.mark.parametrize("act", ["cancel", "hold", "release", "requeue"])
def test_what_is_done_to_jobs_is_one_question_and_quiet(
    act: str, client: Any, spill: Callable[..., Any]
) -> None:
    assert spill(act, "train", "abc") == (0, "", "")
    assert client.asked == [(act, "train", "abc")]


@pytest.mark.parametrize(
    "arguments", [("cancel",), ("hold",), ("release",), ("requeue",), ("set", "--priority", "1")]
)
def test_what_was_done_is_told_to_programs_as_ids(
    arguments: tuple[str, ...], spill: Callable[..., Any]
) -> None:
    assert spill(*arguments, "train", "--json") == (0, '["abcdefghijkl"]\n', "")


def test_rerun_prints_the_new_ids_and_passes_changes_on(client: Any, spill: Callable[..., Any]) -> None:
    typed = spill("rerun", "train", "sweep", "--failed", "--walltime", "2h", "--cpu", "2", "--env", "A=1")
    assert typed == (0, "abcdefghijkl\nabcdefghijkl\n", "")
    changes = {"spec": {"walltime": "2h", "resources": {"cpu": "2"}, "env": {"A": "1"}}}
    assert client.asked == [
        ("rerun", "train", "sweep", {"failed": True, "changes": changes, "empty_state": False})
    ]


def test_rerun_names_the_flag_of_a_problem(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = FieldProblem("changes.spec.walltime", "'long' is not a duration")

    def refuse(*_: Any, **__: Any) -> list[str]:
        raise Refused("no", status=400, kind="invalid", problems=[problem])

    monkeypatch.setattr(client, "rerun", refuse)
    assert spill("rerun", "train", "--walltime", "long") == (
        2,
        "",
        "spill: --walltime: 'long' is not a duration\n",
    )
    assert "submit it again" in spill("rerun", "train", "--input", "x").err


def test_a_priority_may_be_negative(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("set", "train", "--priority", "-5") == (0, "", "")
    assert client.asked == [("change", "train", {"priority": -5})]


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("--name", "new", "--queue", "long"), {"name": "new", "queue": "long"}),
        (
            ("--cpu", "2", "--memory", "4Gi", "--gpu", "1"),
            {"resources": {"cpu": "2", "memory": "4Gi", "gpu": 1}},
        ),
        (("--walltime", "2h", "--estimate", "none"), {"walltime": "2h", "estimate": None}),
        (("--deadline", "none"), {"deadline": None}),
        (
            ("--after", "a", "--after", "b:any"),
            {"after": [{"job": "a", "on": "success"}, {"job": "b", "on": "any"}]},
        ),
        (
            ("--after", "a:same", "--after", "b:any:same"),
            {
                "after": [
                    {"job": "a", "on": "success", "members": "same"},
                    {"job": "b", "on": "any", "members": "same"},
                ]
            },
        ),
        (("--no-after", "--throttle", "0"), {"after": [], "throttle": 0}),
    ],
)
def test_what_changes_of_a_job_is_sent_as_fields_of_its_file(
    client: Any, spill: Callable[..., Any], words: tuple[str, ...], fields: dict[str, Any]
) -> None:
    assert spill("set", "train", *words) == (0, "", "")
    assert client.asked == [("change", "train", fields)]


def test_a_change_that_changes_nothing_or_contradicts_itself_is_refused(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "spill: nothing to change; give an option such as --walltime (see --help)\n"
    assert spill("set", "train") == (2, "", told)
    told = "spill: give either --after or --no-after\n"
    assert spill("set", "train", "--after", "a", "--no-after") == (2, "", told)
    assert client.asked == []

    def refuse(*_: Any, **__: Any) -> list[str]:
        problem = FieldProblem("spec.walltime", "'long' is not a duration")
        raise Refused("no", status=400, kind="invalid", problems=[problem])

    monkeypatch.setattr(client, "change", refuse)
    told = "spill: --walltime: 'long' is not a duration\n"
    assert spill("set", "train", "--walltime", "long") == (2, "", told)


@pytest.mark.parametrize("what", ["job", "config"])
def test_a_schema_is_printed_as_json(what: str, spill: Callable[..., Any]) -> None:
    typed = spill("schema", what)
    assert typed.code == 0
    assert json.loads(typed.out)["$schema"].startswith("https://json-schema.org/")


def test_a_new_priority_that_the_order_ignores_is_told(client: Any, spill: Callable[..., Any]) -> None:
    client.ignored = ["the priority has no effect"]
    assert spill("set", "train", "--priority", "3").err == "spill: the priority has no effect\n"


def test_what_has_no_effect_is_told(client: Any, spill: Callable[..., Any], here: Path) -> None:
    client.ignored = ["the priority has no effect", "queue 'gpu' is only a label"]
    told = "spill: the priority has no effect\nspill: queue 'gpu' is only a label\n"
    (here / "a.yaml").write_text(TWO_JOBS)
    typed = spill("run", "--detach", "--priority", "5", "--", "true")
    assert (typed.code, typed.err) == (0, told)
    assert spill("run", "--dry-run", "--priority", "5", "--", "true").err == told
    assert spill("submit", "a.yaml").err == told
    assert spill("submit", "a.yaml", "--dry-run").err == told
    assert spill("rerun", "train").err == told


def test_the_orders_that_ignore_priorities_are_known() -> None:
    world = World(load, PolicySet(wait=Choice("never")))
    world.submit(some_job("plain"), some_job("urgent").priority(5))
    plain, urgent = world.job("plain"), world.job("urgent")
    urgent.number = plain.number
    for name, where in BUILT_IN.items():
        if name.startswith("order."):
            key = getattr(order, where.partition(":")[2])().key
            assert (name.removeprefix("order.") in IGNORE_PRIORITY) == (key(plain) == key(urgent))


def test_lines_of_a_script_that_do_not_count_are_told(
    client: Any, spill: Callable[..., Any], here: Path
) -> None:
    (here / "s.sh").write_text(
        "#!/bin/bash\n#SPILL --cpu 2\necho hi\n#SPILL --cpu 64\n\n#PBS -l walltime=1:0:0\n"
    )
    assert spill("submit", "s.sh").err == (
        "spill: s.sh:4: this #SPILL line comes after the first command and is ignored; move it to the top\n"
        "spill: s.sh:6: #PBS lines are ignored; write `#SPILL --cpu 4 --walltime 2h` and the like\n"
    )
    (here / "s.sh").write_text("#!/bin/sh\n#SPILL --cpu 2\necho hi\n")
    assert spill("submit", "s.sh").err == ""
    (here / "a.yaml").write_text(TWO_JOBS.replace("run: echo 1", 'run: "# a comment\\n#SPILL --cpu 2\\n"'))
    assert spill("submit", "a.yaml").err == ""
    (here / "s.sh").write_text("#SPILL --cpu 2\necho hi\n")
    assert spill("submit", "s.sh").err == "spill: s.sh has no #! line, so /bin/sh runs it\n"


@pytest.mark.parametrize(("name", "program"), [("p.py", "python3"), ("p.sh", "sh"), ("p.R", "Rscript")])
def test_a_program_without_an_interpreter_is_refused_with_the_line_to_write(
    client: Any, spill: Callable[..., Any], here: Path, name: str, program: str
) -> None:
    (here / name).write_text("print(1)\n")
    told = f"has no #! line, so nobody knows what runs it; write #!/usr/bin/env {program} as its first line"
    assert spill("submit", name) == (2, "", f"spill: {name}:1: {told}\n")


def test_a_python_script_with_options_and_without_an_interpreter_is_not_run_by_a_shell(
    client: Any, spill: Callable[..., Any], here: Path
) -> None:
    (here / "p.py").write_text("#SPILL --cpu 2\nprint(1)\n")
    assert "write #!/usr/bin/env python3 as its first line" in spill("submit", "p.py").err


@pytest.mark.parametrize("words", [["bash"], ["/bin/bash", "-l"], ["python3"]])
def test_a_program_that_waits_for_somebody_who_types_is_told(
    client: Any, spill: Callable[..., Any], words: list[str]
) -> None:
    assert "gets no terminal and an empty standard input" in spill("run", "--detach", "--", *words).err
    assert spill("run", "--detach", "--", *words, "x.sh").err == ""


def test_standard_input_is_sent_with_the_job(
    client: Any, spill: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"path": "stdin", "digest": hashlib.sha256(b"hello\n").hexdigest(), "size": 6}

    def sent(*words: str) -> tuple[Any, str]:
        said = spill("run", "--detach", *words, "--", "bash").err
        return client.asked[-1][1][0]["spec"].get("stdin"), said

    (here / "words").write_text("hello\n")
    with (here / "words").open() as words:
        monkeypatch.setattr(sys, "stdin", words)
        assert sent() == (given, "")
        os.lseek(words.fileno(), 0, os.SEEK_SET)
        assert sent("--stdin", "-") == (given, "")
        os.lseek(words.fileno(), 0, os.SEEK_SET)
        told = "spill: standard input is not sent to the job, which reads other\n"
        assert sent("--stdin", "other") == ("other", told)
        words.read()
        assert sent()[0] is None, "it was read to its end before"
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        os.write(writer, b"hello\n")
        os.close(writer)
        assert sent() == (given, "")
    with Path("/dev/null").open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert sent()[0] is None


def test_standard_input_beside_job_files_is_told(
    client: Any, spill: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "a.sh").write_text("#!/bin/sh\ncat\n")
    told = "spill: standard input is not sent to the job; write it to a file, and add --stdin FILE\n"
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        assert spill("submit", "a.sh").err == "", "remote shells connect pipes that stay empty"
        os.write(writer, b"hello\n")
        assert spill("submit", "a.sh").err == told
        os.close(writer)
    with (here / "a.sh").open() as words:
        monkeypatch.setattr(sys, "stdin", words)
        assert spill("submit", "a.sh").err == told


def test_there_is_nothing_to_fetch_of_a_job_without_outputs(client: Any, spill: Callable[..., Any]) -> None:
    told = "--fetch has nothing to download: the job has no outputs; name them with --output"
    assert told in spill("run", "--wait", "--fetch", "--", "true").err
    assert told not in spill("run", "--detach", "--fetch", "--output", "x", "--", "true").err


def test_standard_input_that_does_not_come_is_told(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spillover.cli.given.PATIENCE", 0.01)
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        threading.Timer(0.3, os.close, (writer,)).start()
        told = (
            "spill: reading standard input to its end, to send it to the job; `< /dev/null` sends nothing\n"
        )
        assert spill("run", "--detach", "--", "cat").err == told


SBATCH = """\
#!/bin/bash
#SBATCH --job-name=sweep --time=10
#SBATCH --mail-type=END
echo $1
"""


def test_a_script_of_slurm_is_submitted_with_its_warnings(
    client: Any, spill: Callable[..., Any], here: Path
) -> None:
    (here / "job.sbatch").write_text(SBATCH)
    typed = spill("submit", "job.sbatch")
    assert (typed.code, typed.out) == (0, "000000000000\n")
    assert typed.err == (
        "spill: job.sbatch:3: --mail-type: is ignored: the server does not know your address; "
        "write --mail-user=ada@example.org too\n"
    )
    (document,) = submitted(client)
    assert document["metadata"]["name"] == "sweep"
    assert document["spec"]["walltime"] == "10m"


def test_options_of_the_command_line_replace_those_of_files(
    client: Any, spill: Callable[..., Any], here: Path
) -> None:
    (here / "job.sbatch").write_text(SBATCH)
    (here / "two.yaml").write_text(TWO_JOBS.replace("run: echo 1", "run: echo 1, env: {A: x}"))
    options = (
        "--walltime",
        "5m",
        "--cpu",
        "3",
        "--env",
        "B=y",
        "--workdir",
        "sub",
        "--hold",
        "--array",
        "1-9%2",
    )
    assert spill("submit", *options, "job.sbatch", "two.yaml").code == 0
    documents = submitted(client)
    assert [document["spec"]["walltime"] for document in documents] == ["5m"] * 3
    assert [document["spec"]["resources"] for document in documents] == [{"cpu": 3}] * 3
    assert [document["spec"]["env"] for document in documents] == [
        {"SLURM_SUBMIT_HOST": socket.gethostname(), "SPILL_SRUN": "offered", "B": "y"},
        {"A": "x", "B": "y"},
        {"B": "y"},
    ]
    assert {document["spec"]["workdir"] for document in documents} == {str(here / "sub")}
    assert [document["spec"]["array"] for document in documents] == ["1-9%2"] * 3
    assert all(document["spec"]["hold"] for document in documents)


def test_a_wrong_option_of_submit_is_named_by_its_flag(
    client: Any, spill: Callable[..., Any], here: Path
) -> None:
    (here / "two.yaml").write_text(TWO_JOBS)
    typed = spill("submit", "--walltime", "soon", "two.yaml")
    assert (typed.code, client.asked) == (2, [])
    assert typed.err.startswith("spill: --walltime: 'soon' is not ")
    assert spill("submit", "--gpu", "x", "two.yaml").err == "spill: --gpu: 'x' is not a whole number\n"


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        (("job.sbatch", "0.1", "64"), ["0.1", "64"]),
        (("job.sbatch", "--", "--lr", "0.1"), ["--lr", "0.1"]),
        (("job.sbatch", "--walltime", "5m", "--", "two.yaml"), ["two.yaml"]),
        (("job.sbatch", "two.yaml", "x"), ["two.yaml", "x"]),
        (("job.sbatch",), []),
    ],
)
def test_words_behind_a_script_are_its_arguments(
    client: Any, spill: Callable[..., Any], here: Path, words: tuple[str, ...], arguments: list[str]
) -> None:
    (here / "job.sbatch").write_text(SBATCH)
    (here / "two.yaml").write_text(TWO_JOBS)
    assert spill("submit", *words).code == 0
    (document,) = submitted(client)
    assert document["spec"]["command"][4:] == arguments


def test_arguments_need_one_script(client: Any, spill: Callable[..., Any], here: Path) -> None:
    (here / "job.sbatch").write_text(SBATCH)
    (here / "two.yaml").write_text(TWO_JOBS)
    assert spill("submit", "job.sbatch", "two.yaml", "--", "x").err == (
        "spill: arguments behind -- need exactly one script before it\n"
    )
    assert spill("submit", "two.yaml", "--", "x").err == (
        "spill: two.yaml: is a job file; only scripts take arguments\n"
    )
    assert len(client.asked) == 0
    assert spill("submit", "job.sbatch", "two.yaml").code == 0
    assert len(submitted(client)) == 3


ALL = ["HELD", "QUEUED", "PLACED", "RUNNING"]


def test_jobs_that_match_filters_are_changed_together(
    client: Any, spill: Callable[..., Any], a_queued_job: Any
) -> None:
    client.known = [
        a_queued_job(id="aaaaaaaaaaaa", name="sweep-1"),
        a_queued_job(id="bbbbbbbbbbbb", name="train"),
        a_queued_job(id="cccccccccccc", name="sweep-2"),
    ]
    typed = spill(
        "cancel", "--state", "queued,running", "--user", "mira", "--queue", "gpu", "--name", "sweep-*"
    )
    assert typed == (0, "", "spill: cancel: 2 jobs\n")
    query = {"state": "QUEUED,RUNNING", "project": None, "user": "mira", "name": None}
    states = {"states": ["QUEUED", "RUNNING"], "dry_run": False}
    assert client.asked == [
        ("jobs", {**query, "since": None, "queue": "gpu"}),
        ("cancel", "aaaaaaaaaaaa", "cccccccccccc", states),
    ]


def test_filters_without_states_look_for_all_that_can_be_changed(
    client: Any, spill: Callable[..., Any]
) -> None:
    client.changed = ["aaaaaaaaaaaa", "bbbbbbbbbbbb.1", "bbbbbbbbbbbb.2"]
    for act, states in {
        "cancel": ALL,
        "hold": ["HELD", "QUEUED"],
        "release": ["HELD"],
        "requeue": ["PLACED", "RUNNING"],
    }.items():
        assert spill(act, "--since", "1d") == (0, "", f"spill: {act}: 1 job and 2 members\n")
        assert client.asked[-1][-1] == {"states": states, "dry_run": False}
        assert client.asked[-2][1]["state"] == ",".join(states)
        assert client.asked[-2][1]["since"] is not None


def test_a_dry_run_lists_what_would_be_changed(
    client: Any, spill: Callable[..., Any], a_queued_job: Any
) -> None:
    client.known = [
        a_queued_job(id="aaaaaaaaaaaa", name="sweep", array=ArrayView(20, {"RUNNING": 2, "QUEUED": 18})),
        a_queued_job(id="bbbbbbbbbbbb"),
        a_queued_job(id="cccccccccccc"),
    ]
    client.changed = ["aaaaaaaaaaaa", "aaaaaaaaaaaa.1", "bbbbbbbbbbbb"]
    code, out, err = spill("cancel", "--mine", "--dry-run")
    assert code == 0
    assert [line.split(maxsplit=4) for line in out.splitlines()] == [
        ["JOB", "NAME", "USER", "STATE", "WHAT"],
        [
            "aaaaaaaaaaaa",
            "sweep",
            "mira",
            "QUEUED",
            "cancel 18 pending members and 1 placed or running member",
        ],
        ["bbbbbbbbbbbb", "train", "mira", "QUEUED", "cancel"],
    ]
    assert err == "spill: cancel would change 2 jobs and 1 member; nothing was changed\n"
    assert client.asked[-1][-1] == {"states": ALL, "dry_run": True}


def test_filters_that_match_nothing_change_nothing(client: Any, spill: Callable[..., Any]) -> None:
    client.known = []
    assert spill("hold", "--name", "x*") == (0, "", "spill: hold: 0 jobs\n")
    assert [asked[0] for asked in client.asked] == ["jobs"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("cancel",), "give either jobs or filters such as --mine and --name (see --help)"),
        (("cancel", "train", "--mine"), "give either jobs or filters such as --mine and --name (see --help)"),
        (("hold", "--state", "running"), "--state RUNNING: hold is for jobs that are HELD or QUEUED"),
    ],
)
def test_changes_need_jobs_or_filters_that_can_match(
    client: Any, spill: Callable[..., Any], words: tuple[str, ...], says: str
) -> None:
    assert spill(*words) == (2, "", f"spill: {says}\n")
    assert client.asked == []


def test_a_refusal_names_the_line_of_a_script_that_asks_for_it(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH -p nosuch\n#SBATCH -d afterok:gone\n#SPILL --cpu 2\ntrue\n")
    problems = [
        FieldProblem("jobs[0].spec.queue", "there is no queue 'nosuch'"),
        FieldProblem("jobs[0].spec.after[0].job", "there is no job 'gone'"),
        FieldProblem("jobs[0].spec.resources.cpu", "too many"),
    ]

    def refuse(*_: Any, **__: Any) -> list[str]:
        raise Refused("no", status=400, kind="invalid", problems=problems)

    monkeypatch.setattr(client, "submit", refuse)
    told = spill("submit", str(script)).err.splitlines()
    assert told == [
        f"spill: {script}:2: spec.queue: there is no queue 'nosuch'",
        f"spill: {script}:3: spec.after[0].job: there is no job 'gone'",
        f"spill: {script}:4: spec.resources.cpu: too many",
    ]
    told = spill("submit", "--queue", "other", str(script)).err.splitlines()
    assert told[0] == f"spill: {script}: spec.queue: there is no queue 'nosuch'"
