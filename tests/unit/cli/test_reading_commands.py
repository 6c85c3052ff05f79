"""Commands that ask and print: ls, show, why, logs, wait, clusters, agents, events."""

import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from msgspec.structs import replace

from spillover.cli.commands.ls import watch
from spillover.cli.commands.places import AGENTS, agent_row
from spillover.cli.printing.job_columns import DEFAULT, JOB_COLUMNS, columns_of, rows_of
from spillover.cli.printing.output import Output
from spillover.client import Refused, WaitTimeout
from spillover.wire.api import (
    ArrayView,
    ChangesView,
    EventView,
    ExpectedStart,
    OtherJob,
    ReasonView,
    SetAsideView,
    SmallChange,
    TaskView,
)


def test_ls_prints_aligned_columns_in_a_pipe(
    client: Any, spill: Callable[..., Any], a_job: Any, a_queued_job: Any, a_failed_job: Any
) -> None:
    client.known = [
        a_queued_job(name="later"),
        a_failed_job(cost=0.0223),
        a_job(cluster="cloud", node="v1", cost=12.5),
    ]
    typed = spill("ls")
    title, queued, failed, succeeded = typed.out.splitlines()
    assert title.split() == ["JOB", "NAME", "STATE", "AGE", "RAN", "COST", "WHERE,", "WHY"]
    at = title.index("WHERE, WHY")
    assert queued[at:] == "waits for 2 CPU on one machine of onprem"
    assert failed[at:] == "onprem/n1: exited with code 3"
    assert succeeded[at:] == "cloud/v1"
    assert [line[:at].split()[-2:] for line in (queued, failed, succeeded)] == [
        ["-", "-"],
        ["1m", "0.0223"],
        ["1m", "12.50"],
    ]


def test_ls_asks_for_what_the_options_say(client: Any, spill: Callable[..., Any]) -> None:
    spill("ls", "--state", "timed_out", "--project", "vision", "--mine", "--limit", "7")
    [(_, query)] = client.asked
    assert (query["state"], query["project"], query["user"], query["limit"]) == (
        "TIMED_OUT",
        "vision",
        "mira",
        7,
    )
    assert (query["since"], query["name"], query["members"]) == (None, None, False)


def test_ls_finds_members_by_the_name_of_their_array_and_jobs_of_others(
    client: Any, spill: Callable[..., Any]
) -> None:
    spill("ls", "--members", "--name", "sweep", "--user", "ada")
    [(_, query)] = client.asked
    assert (query["members"], query["name"], query["user"]) == (True, "sweep", "ada")
    assert spill("ls", "--mine", "--user", "ada").code == 2


def test_ls_prints_the_columns_that_are_asked_for_in_the_order_that_is_asked_for(
    client: Any, spill: Callable[..., Any], a_job: Any, a_queued_job: Any
) -> None:
    client.known = [
        a_queued_job(id="q" * 12, name="b", user="ada", walltime_s=7200.0),
        a_job(name="b", cost=1.5),
        a_job(id="m" * 12, name="a", cost=12.5),
    ]
    typed = spill("ls", "--columns", "user,ID,exit,limit,memory,cost", "--sort=name", "--sort=-cost")
    assert [line.split() for line in typed.out.splitlines()] == [
        ["USER", "JOB", "EXIT", "LIMIT", "MEMORY", "COST"],
        ["mira", "m" * 12, "0", "-", "1Gi", "12.50"],
        ["mira", "abcdefghijkl", "0", "-", "1Gi", "1.50"],
        ["ada", "q" * 12, "-", "2h", "1Gi", "-"],
    ]
    assert spill("ls", "--columns", "id", "--no-header").out.splitlines() == [
        "q" * 12,
        "abcdefghijkl",
        "m" * 12,
    ]
    assert spill("ls", "--columns", "name,exit", "--csv").out == "name,exit\nb,-\nb,0\na,0\n"


def test_jobs_without_a_value_come_last_in_both_directions(
    client: Any, spill: Callable[..., Any], a_job: Any, a_queued_job: Any
) -> None:
    client.known = [a_queued_job(id="q" * 12), a_job(id="m" * 12, exit_code=1), a_job(id="n" * 12)]
    for by, wanted in (("exit", "nmq"), ("-exit", "mnq")):
        listed = spill("ls", "--columns=id", "--no-header", f"--sort={by}").out
        assert [line[0] for line in listed.splitlines()] == list(wanted)


def test_ls_says_which_columns_there_are(spill: Callable[..., Any]) -> None:
    for option in ("--columns", "--sort"):
        typed = spill("ls", option, "id,stat")
        assert typed.code == 2
        assert f"{option}: 'stat' is not a column; did you mean state?" in typed.err
        assert "columns are id, name, user" in typed.err
    assert spill("ls", "--json", "--columns", "id").code == 2


def test_ls_says_if_it_sorted_a_part_only(client: Any, spill: Callable[..., Any], a_job: Any) -> None:
    client.known = [a_job(name=name) for name in "cba"]
    typed = spill("ls", "--sort", "name", "--limit", "2", "--columns", "name", "--no-header")
    assert typed.out.split() == ["b", "c"]
    assert "sorted the newest 2 jobs only; --limit lists more" in typed.err
    assert spill("ls", "--sort", "name", "--limit", "3").err == ""


def test_ls_finds_several_states_a_queue_and_the_jobs_of_me(client: Any, spill: Callable[..., Any]) -> None:
    spill("ls", "--state", "queued,Timed-Out,queued", "--queue", "gpu", "--user", "me")
    [(_, query)] = client.asked
    assert (query["state"], query["queue"], query["user"]) == ("QUEUED,TIMED_OUT", "gpu", "mira")


def test_ls_prints_one_json_array(client: Any, spill: Callable[..., Any], a_job: Any) -> None:
    client.known = [a_job(), a_job(id="m" * 12)]
    listed = json.loads(spill("ls", "--json").out)
    assert [job["id"] for job in listed] == ["abcdefghijkl", "m" * 12]
    wanted = {
        *("id", "name", "user", "project", "queue", "state", "cluster", "node", "attempt", "reason"),
        *("submitted_at", "started_at", "finished_at", "exit_code", "signal", "cost", "estimate_s"),
    }
    assert wanted <= set(listed[0])


def test_ls_prints_no_more_than_the_limit(client: Any, spill: Callable[..., Any], a_job: Any) -> None:
    client.known = [a_job() for _ in range(9)]
    assert len(json.loads(spill("ls", "--json", "--limit", "4").out)) == 4


def test_ls_without_jobs_prints_nothing_but_a_note(client: Any, spill: Callable[..., Any]) -> None:
    client.known = []
    assert spill("ls") == (0, "", "spill: no jobs\n")
    assert spill("ls", "--json") == (0, "[]\n", "")


def test_an_array_is_listed_with_its_progress(
    client: Any, spill: Callable[..., Any], a_queued_job: Any
) -> None:
    client.known = [a_queued_job(array=ArrayView(6, {"QUEUED": 3, "RUNNING": 2, "SUCCEEDED": 1}))]
    assert "6: 2 running, 3 queued, 1 done: waits for 2 CPU" in spill("ls").out


def test_an_array_is_shown_with_its_progress_and_how_to_see_a_member(
    client: Any, spill: Callable[..., Any], a_queued_job: Any
) -> None:
    client.known = [a_queued_job(array=ArrayView(6, {"QUEUED": 3, "SUCCEEDED": 3}))]
    out = spill("show", "train").out
    assert re.search("^array +6: 3 queued, 3 done$", out, re.MULTILINE)
    assert "`spill show abcdefghijkl.INDEX` shows a member, `spill ls --members --name train` lists" in out


def test_the_tasks_of_a_gang_are_shown_with_a_row_each(
    client: Any, spill: Callable[..., Any], a_job: Any
) -> None:
    began, over = "2026-01-31T10:00:05Z", "2026-01-31T10:01:05Z"
    tasks = [
        TaskView(0, "n1", "SUCCEEDED", began, over, 0, None, 60.0, 42.0, 3 * 2**20),
        TaskView(1, "n2", "FAILED", began, over, 7, None, 60.0, None, None, "pod b said no"),
        TaskView(2, "n2", "CANCELLED", None, over, None, 15, None, None, None),
    ]
    client.known = [a_job(tasks=tasks, task_counts={"SUCCEEDED": 1, "FAILED": 1, "CANCELLED": 1})]
    out = spill("show", "train").out
    assert re.search("^tasks +3, 1 succeeded, 1 failed, 1 cancelled$", out, re.MULTILINE)
    rows = [line.split(maxsplit=7) for line in out.splitlines()]
    assert ["0", "n1", "SUCCEEDED", "0", "1m", "42s", "3Mi"] in rows
    assert ["1", "n2", "FAILED", "7", "1m", "pod", "b", "said no"] in rows
    assert ["2", "n2", "CANCELLED", "signal", "15"] in rows
    client.known = [a_job()]
    assert "TASK" not in spill("show", "train").out


@pytest.mark.parametrize(
    ("source", "because", "told"),
    [
        ("estimate", None, "45s (its own estimate)"),
        ("walltime", None, "45s (its walltime)"),
        (
            "walltime",
            "9 of 10 runs took no longer than 5s",
            "45s (its walltime; 9 of 10 runs took no longer than 5s)",
        ),
        ("history", None, "45s (jobs like it)"),
        ("history", "9 of 10 runs took no longer", "45s: 9 of 10 runs took no longer"),
        ("default", None, "45s (the default)"),
        (None, None, "45s"),
    ],
)
def test_an_estimate_is_shown_with_where_it_comes_from(
    source: str | None,
    because: str | None,
    told: str,
    client: Any,
    spill: Callable[..., Any],
    a_job: Any,
) -> None:
    client.known = [a_job(estimate_from=source, estimate_because=because)]
    assert f"{told}\n" in spill("show", "train").out


def test_what_others_wrote_cannot_drive_a_terminal(
    client: Any, spill: Callable[..., Any], a_failed_job: Any, a_reason: Any
) -> None:
    client.known = [a_failed_job(reason=a_reason("no such file: \x1b]0;title\x07\nx", "could_not_start"))]
    typed = spill("ls")
    assert "\x1b" not in typed.out
    assert len(typed.out.splitlines()) == 2


def test_a_table_fits_a_terminal_of_80_columns(terminal: Output, a_queued_job: Any) -> None:
    terminal.table(
        columns_of(DEFAULT),
        rows_of([a_queued_job(name="a-very-long-name-of-a-job-that-goes-on-and-on")], DEFAULT),
    )
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.out.getvalue())  # type: ignore[attr-defined]
    assert all(len(line) <= 80 for line in plain.splitlines())
    assert "abcdefghijkl" in plain
    assert "QUEUED" in plain


@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_row_is_one_line_however_narrow_the_terminal_is(
    width: int, terminal: Output, a_queued_job: Any, client: Any
) -> None:
    narrow = Output(terminal.out, terminal.err, width=width)
    narrow.table(
        columns_of(DEFAULT),
        rows_of([a_queued_job(name="a-very-long-name-of-a-job"), a_queued_job()], DEFAULT),
    )
    narrow.table(AGENTS, [agent_row(agent) for agent in client.agents()])
    plain = re.sub(r"\x1b\[[0-9;]*m", "", terminal.out.getvalue())  # type: ignore[attr-defined]
    lines = plain.splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= width
    assert lines[1].startswith("abcdefghijkl")
    assert lines[1].rstrip().endswith("…")


def test_watching_in_a_pipe_reprints_the_table(a_job: Any) -> None:
    pipe = io.StringIO()
    watch(Output(pipe, pipe), iter([[a_job()], [a_job(), a_job()]]))
    assert [line[:3] for line in pipe.getvalue().splitlines()] == ["JOB", "abc", "", "JOB", "abc", "abc"]


def test_watching_on_a_terminal_draws_in_place(terminal: Output, a_job: Any) -> None:
    watch(terminal, iter([[a_job()], [a_job()]]))
    assert terminal.out.getvalue().count("abcdefghijkl") == 2  # type: ignore[attr-defined]


def test_show_prints_a_sheet_and_the_job_file(client: Any, spill: Callable[..., Any], a_job: Any) -> None:
    client.known = [
        a_job(
            spec={"kind": "Job", "spec": {"run": "python train.py"}},
            ran_s=60.0,
            cpu_s=55.2,
            peak_memory=3 * 2**20,
            cost=0.5,
        )
    ]
    lines = spill("show", "train").out.splitlines()
    facts = dict(
        line.split(maxsplit=1) for line in lines[: lines.index("")] if line.split(maxsplit=1)[0] != "exit"
    )
    assert facts["state"] == "SUCCEEDED"
    assert facts["where"] == "onprem/n1, because owned capacity had room"
    assert facts["owner"] == "mira, project vision, queue default, priority 0"
    assert facts["requests"] == "2 CPU, 1Gi"
    assert facts["started"] == "2026-01-31 10:00:05 UTC (waited 5s)"
    assert facts["estimate"] == "45s (the default)"
    assert facts["ran"] == "1m, 55s of CPU, at most 3Mi of memory"
    assert facts["cost"] == "0.5000 USD"
    assert lines[lines.index("") + 1 :] == ["kind: Job", "spec:", "  run: python train.py"]


def test_show_prints_a_script_as_a_block(client: Any, spill: Callable[..., Any], a_job: Any) -> None:
    script = "#!/bin/bash\nfor x in 1 2; do\n  echo $x: 'it'\ndone\n"
    client.known = [
        a_job(spec={"spec": {"run": script, "command": ["bash", "-c", script], "name": "one line"}})
    ]
    lines = spill("show", "train").out.splitlines()
    block = ["#!/bin/bash", "for x in 1 2; do", "  echo $x: 'it'", "done"]
    assert lines[lines.index("  run: |") + 1 :][:4] == [f"    {line}" for line in block]
    assert lines[lines.index("  - |") + 1 :][:4] == [f"    {line}" for line in block]
    assert "  name: one line" in lines
    written = "\n".join(lines[lines.index("") + 1 :])
    assert yaml.safe_load(written + "\n")["spec"]["run"] == script


def test_show_does_not_count_earlier_attempts_as_a_wait(
    client: Any, spill: Callable[..., Any], a_job: Any
) -> None:
    client.known = [a_job(attempt=2, waited_s=2.0)]
    assert "2026-01-31 10:00:05 UTC (waited 2s)\n" in spill("show", "train").out
    client.known = [a_job(attempt=2)]
    assert "2026-01-31 10:00:05 UTC\n" in spill("show", "train").out


def test_show_leaves_out_what_is_not_known_yet(
    client: Any, spill: Callable[..., Any], a_queued_job: Any
) -> None:
    client.known = [a_queued_job()]
    out = spill("show", "train").out
    assert "QUEUED, waits for 2 CPU on one machine of onprem" in out
    assert not re.search(r"^(where|attempt|started|finished|ran|exit code|signal|cost)\b", out, re.MULTILINE)


def test_show_prints_one_json_object(spill: Callable[..., Any]) -> None:
    assert json.loads(spill("show", "train", "--json").out)["id"] == "abcdefghijkl"


def test_why_prints_the_sentence_then_the_facts(spill: Callable[..., Any]) -> None:
    assert spill("why", "train").out == (
        "train waits for 2 CPU on one machine of onprem.\n"
        "\n"
        "state            QUEUED\n"
        "waiting since    2026-01-31 10:00:00 UTC (waited 1m30s)\n"
        "may spill at     2026-01-31 10:05:00 UTC (in 3m30s)\n"
        "ahead of it      3 jobs\n"
        "expected to run  45s (its walltime)\n"
        "\n"
        "CLUSTER  ROLE    REASON\n"
        "onprem   owned   waits for 2 CPU on one machine of onprem\n"
        "cloud    rented  has room for it\n"
    )


@pytest.mark.parametrize(
    ("count", "more"), [(1, ""), (3, "; train (j1), SUCCEEDED; train (j2), SUCCEEDED"), (5, "; 2 more")]
)
def test_why_names_the_jobs_that_one_waits_for(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, count: int, more: str
) -> None:
    reason = ReasonView("after", "waits", never=False, details={"jobs": [f"j{at}" for at in range(count)]})
    why = replace(client.why("train"), reason=reason)
    monkeypatch.setattr(client, "why", lambda _: why)
    (line,) = (line for line in spill("why", "train").out.splitlines() if line.startswith("waits for"))
    assert line.startswith("waits for        train (j0), SUCCEEDED")
    assert line.endswith(more or "SUCCEEDED")
    assert len([asked for asked in client.asked if asked[0] == "job"]) == min(3, count)


def test_a_job_that_is_gone_by_now_is_not_named(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(job: str) -> NoReturn:
        raise Refused(f"there is no job {job}", status=404, kind="unknown")

    why = replace(
        client.why("train"), reason=ReasonView("after", "waits", never=False, details={"jobs": ["j0"]})
    )
    monkeypatch.setattr(client, "why", lambda _: why)
    monkeypatch.setattr(client, "job", gone)
    typed = spill("why", "train")
    assert (typed.code, "waits for  " in typed.out) == (0, False)


def test_why_what_if_lists_what_would_let_it_start_with_the_commands(
    client: Any, spill: Callable[..., Any]
) -> None:
    changes = [
        SmallChange("memory", "with 6Gi of memory instead of 8Gi, it would start on onprem", "onprem", "room", {"spec": {"resources": {"memory": str(6 * 2**30)}}}),
        SmallChange("size", "with 1.5 CPUs and 3Gi of memory, it would start on onprem", "onprem", "room", {"spec": {"resources": {"cpu": "1500m", "memory": str(3 * 2**30), "gpu": 1}}}),
        SmallChange("walltime", "with a walltime of 30m instead of 1h, it would start on onprem", "onprem", "room", {"spec": {"walltime": "1800s"}}),
        SmallChange("hold", "if it were released, it would start on onprem", "onprem", "room", None),
        SmallChange("burst", "if it were rented at once, it would start on cloud", "cloud", "room", None),
    ]  # fmt: skip
    ahead = [OtherJob("j1", "first", "ada"), OtherJob(None, "a job of another project", "")]
    ends = [OtherJob("j2", "long", "ada", "2026-01-31T10:05:00.000000Z")]
    client.changes = lambda _: ChangesView(
        "train", "QUEUED", "train waits.", ahead, 7, False, ends, None, changes, 12, True
    )
    assert spill("why", "train", "--what-if").out == (
        "train waits.\n"
        "\n"
        "ahead of it     first (j1), a job of another project and 5 more\n"
        "ends before it  long (j2), expected 2026-01-31 10:05:00 UTC\n"
        "\n"
        "It would start now, as the scheduler says (12 changes tried):\n"
        "CHANGE                                COMMAND\n"
        "with 6Gi of memory instead of 8Gi     spill set train --memory 6Gi\n"
        "with 1.5 CPUs and 3Gi of memory       spill set train --cpu 1.5 --memory 3Gi --gpu 1\n"
        "with a walltime of 30m instead of 1h  spill set train --walltime 1800s\n"
        "if it were released                   spill release train\n"
        "if it were rented at once             -\n"
    )
    client.changes = lambda _: ChangesView(
        "train", "QUEUED", "train waits.", [], 0, False, [], None, [], 12, False
    )
    told = spill("why", "train", "--what-if").out
    assert "No change was found with which it would start now (12 tried, before the time was up)." in told
    both = spill("why", "train", "--what-if", "--if", "cpu=1")
    assert (both.code, "not allowed with --if" in both.err) == (2, True)


def test_why_says_that_a_job_cannot_end_by_its_deadline(client: Any, spill: Callable[..., Any]) -> None:
    why = replace(client.why("train"), reason=ReasonView("too_late", "it is late", never=True))
    client.why = lambda _: why
    assert "never            it cannot end by its deadline" in spill("why", "train").out


def test_why_says_when_a_job_is_expected_to_start_or_why_that_is_not_known(
    client: Any, spill: Callable[..., Any]
) -> None:
    why = client.why("train")
    start = ExpectedStart("2036-01-31T10:00:00.000000Z", "2036-01-31T11:00:00.000000Z")
    client.why = lambda _: replace(why, expected_start=start)
    told = next(
        line for line in spill("why", "train").out.splitlines() if line.startswith("expected to start")
    )
    assert told.split(maxsplit=3)[3].startswith("2036-01-31")
    assert ", 90 %: by 2036-01-31" in told
    client.why = lambda _: replace(why, expected_start_note="it is beyond the first 1,000 jobs of the queue")
    assert "not known: it is beyond the first 1,000 jobs" in spill("why", "train").out


def test_a_list_has_a_column_of_expected_starts_only_if_it_is_asked_for(
    client: Any, spill: Callable[..., Any]
) -> None:
    assert "STARTS" not in spill("ls").out
    assert client.asked[-1][1]["starts"] is False
    near, far = ((datetime.now(UTC) + timedelta(seconds=seconds)).isoformat() for seconds in (100.4, 3600.4))
    waits = replace(client.known[0], state="QUEUED", expected_start=ExpectedStart(near, far))
    client.known = [waits, *client.known[1:]]
    head, first, *_ = spill("ls", "--starts").out.splitlines()
    assert head.split()[:4] == ["JOB", "NAME", "STATE", "STARTS"]
    assert "in 1m40s..1h" in first
    assert "STARTS" not in spill("ls").out
    assert client.asked[-2][1]["starts"] is True


def test_why_prints_one_json_object(spill: Callable[..., Any]) -> None:
    why = json.loads(spill("why", "train", "--json").out)
    assert (why["ahead"], why["reason"]["code"], why["spills_in_s"]) == (3, "no_room", 210.0)


def test_logs_are_copied_byte_for_byte(client: Any, spill: Callable[..., Any]) -> None:
    client.output = {False: [b"one\xff", b"\x00two\n"], True: [b"oh\n"]}
    assert spill("logs", "train", "-f", "--attempt", "2") == (0, "one\udcff\x00two\n", "")
    read = ("logs", "train", {"follow": True, "stderr": False, "attempt": 2, "task": 0})
    assert client.asked == [("job", "train"), read]
    assert spill("logs", "train", "--stderr") == (0, "oh\n", "")


def test_logs_of_a_job_that_never_ran_say_so(
    client: Any, spill: Callable[..., Any], a_queued_job: Any, a_job: Any
) -> None:
    client.known = [a_queued_job()]
    assert spill("logs", "train") == (0, "", "spill: abcdefghijkl has not run yet and has no output\n")
    client.known = [a_job()]
    assert spill("logs", "train") == (0, "", "")


def test_waiting_for_success_is_quiet(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("wait", "train", "other", "--timeout", "1m30s") == (0, "", "")
    assert client.asked == [("wait", "train", "other", 90.0)]


def test_waiting_names_the_jobs_that_did_not_succeed(
    client: Any, spill: Callable[..., Any], a_job: Any, a_failed_job: Any
) -> None:
    client.known = [a_job(), a_failed_job(name="broken")]
    assert spill("wait", "train", "broken") == (
        1,
        "",
        "spill: abcdefghijkl (broken) is FAILED: exited with code 3\n",
    )


def test_waiting_too_long_is_124(client: Any, spill: Callable[..., Any]) -> None:
    client.ends = [WaitTimeout(["train"])]
    typed = spill("wait", "train", "--timeout", "1s")
    assert (typed.code, typed.out) == (124, "")
    assert typed.err.startswith("spill: train did not end in time")


def test_wait_prints_one_json_array(client: Any, spill: Callable[..., Any], a_failed_job: Any) -> None:
    client.known = [a_failed_job()]
    typed = spill("wait", "train", "--json")
    assert typed.code == 1
    assert [job["exit_code"] for job in json.loads(typed.out)] == [3]


def test_clusters_are_listed_with_use_and_price(spill: Callable[..., Any]) -> None:
    lines = [line.split(maxsplit=9) for line in spill("clusters").out.splitlines()]
    assert lines[1] == ["onprem", "agents", "owned", "READY", "1", "2", "1.5/2", "512Mi/4Gi", "-", "-"]
    assert lines[2][9] == "cpu 0.04, gpu 2.5"
    assert [one["name"] for one in json.loads(spill("clusters", "--json").out)] == ["onprem", "cloud"]


def test_agents_are_listed(spill: Callable[..., Any]) -> None:
    line = spill("agents").out.splitlines()[1]
    assert line.split() == [
        *["n1", "onprem", "ready", "1", "2", "0", "1/2", "0/4Gi"],
        *["-", "-", "-", "-", "shell"],
    ]
    assert json.loads(spill("agents", "--json").out)[0]["leased"] == 2


@pytest.fixture
def two_events(client: Any) -> None:
    at = "2026-01-31T10:00:00.000000Z"
    client.history = [
        EventView(7, at, "job_submitted", "abcdefghijkl", "mira submitted train"),
        EventView(8, at, "epoch_started", None, "epoch 2 began"),
    ]


@pytest.mark.usefixtures("two_events")
def test_events_are_one_line_each(client: Any, spill: Callable[..., Any]) -> None:
    assert spill("events", "--after", "6").out == (
        "     7  2026-01-31 10:00:00 UTC  abcdefghijkl      mira submitted train\n"
        "     8  2026-01-31 10:00:00 UTC  -                 epoch 2 began\n"
    )
    plain = {"after": 6, "follow": False, "job": None, "user": None, "since": None, "until": None}
    assert client.asked == [("events", plain | {"cycles": False})]


def test_events_of_a_person_and_a_span_of_time(client: Any, spill: Callable[..., Any]) -> None:
    assert (
        spill("events", "--user", "me", "--since", "2027-01-30", "--until", "2027-01-31", "--all").code == 0
    )
    [(_, asked)] = client.asked
    assert (asked["user"], asked["cycles"]) == (client.user, True)
    assert [asked[name].day for name in ("since", "until")] == [30, 31]


def test_a_span_of_events_that_ends_is_not_followed(spill: Callable[..., Any]) -> None:
    typed = spill("events", "-f", "--until", "2027-01-31")
    assert (typed.code, typed.out) == (2, "")
    assert "--until does not go with --follow" in typed.err


@pytest.mark.usefixtures("two_events")
def test_events_as_json_are_an_array_or_when_followed_an_object_a_line(spill: Callable[..., Any]) -> None:
    assert [event["revision"] for event in json.loads(spill("events", "--json").out)] == [7, 8]
    assert [json.loads(line)["revision"] for line in spill("events", "-f", "--json").out.splitlines()] == [
        7,
        8,
    ]


def test_watching_and_json_do_not_go_together(client: Any, spill: Callable[..., Any]) -> None:
    typed = spill("ls", "--watch", "--json")
    assert (typed.code, client.asked) == (2, [])
    assert "events -f --json" in typed.err


def test_show_says_what_the_server_failed_to_do_for_a_job(
    client: Any, spill: Callable[..., Any], a_job: Any
) -> None:
    failed = SetAsideView(
        "archiving", "train", "ValueError: odd", "2027-01-31T12:00:00Z", 3, "2027-01-31T12:00:07Z"
    )
    client.known = [a_job(set_aside=[failed])]
    line = next(line for line in spill("show", "train").out.splitlines() if line.startswith("retrying"))
    assert re.fullmatch(
        r"retrying +archiving failed 3 times since .*12:00:00.*, next try .*12:00:07.*: ValueError: odd",
        line,
    )
    shown = json.loads(spill("show", "train", "--json").out)
    assert shown["set_aside"][0]["next_try"] == "2027-01-31T12:00:07Z"


def test_show_says_how_often_a_machine_was_taken_back_under_a_job(
    client: Any, spill: Callable[..., Any], a_job: Any
) -> None:
    for times, said in ((0, None), (1, "interrupted once"), (3, "interrupted 3 times")):
        found = a_job(attempt=4, interruptions=times)
        client.job = lambda _, found=found: found
        shown = spill("show", "train").out
        assert (said is not None) == ("interrupted" in shown)
        assert said is None or f"{said} because its machine was taken back" in shown
        assert json.loads(spill("show", "train", "--json").out)["interruptions"] == times


def test_the_docs_list_every_column_of_ls() -> None:
    page = (Path(__file__).parents[3] / "docs" / "command-line.md").read_text()
    listed = re.findall(r"^\| `(\w+)` \| (.*) \|$", page.partition("| column | shows |")[2], re.MULTILINE)
    assert listed[: len(JOB_COLUMNS)] == [(name, column.about) for name, column in JOB_COLUMNS.items()]
