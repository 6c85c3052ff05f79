"""Programs of an operator: what they get, what their ends mean, and what is kept of them; for machines and clusters."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.model.pools import RefusalCause
from spillover.ports.provider import (
    Created,
    Listed,
    Made,
    NotNow,
    Presence,
    ProviderError,
    Refused,
    Unknown,
    name_prefix,
)
from spillover.providers.command import programs
from spillover.providers.command.provider import CommandForm, CommandKind, CommandMaker, CommandProvider
from spillover.testing.maker_suite import MakerSuite
from spillover.testing.provider_suite import CLUSTER, OTHER, OWNER, ProviderSuite, an_opening
from tests.support.processes import wait_until

run = asyncio.run
SUITE = ProviderSuite()
ORDER = SUITE.an_order()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "command"


def opened(folder: Path, script: str, **more: Any) -> CommandProvider:
    """A provider whose three programs are one shell script; $1 is which."""
    create, listing, destroy = (["sh", "-c", script, "sh", each] for each in ("create", "list", "destroy"))
    return CommandKind().open(CommandForm(create, listing, destroy, **more), an_opening(folder))


def created(folder: Path, script: str, **more: Any) -> Created:
    return run(opened(folder, script, **more).create(ORDER))


def log_of(folder: Path, name: str = f"create-{ORDER.name}") -> Path:
    return folder / "logs" / f"{name}.log"


def test_create_gets_all_that_a_machine_needs(folder: Path) -> None:
    offer = replace(SUITE.offer, zone="a", spot=True, words=("gpu:a100",), labels={"rack": "r1"})
    order = replace(SUITE.an_order(offer=offer), group="gang-1")
    provider = opened(folder, f'cat > {folder}/asked; echo \'{{"id": "i-1", "at": "2027-01-01T00:00:00Z"}}\'')
    answer = run(provider.create(order))
    assert answer == Made("i-1", 1_798_761_600_000_000_000)
    asked = json.loads((folder / "asked").read_text())
    assert asked.pop("user_data").startswith("#!/bin/sh\n# Joins cloud of Spillover as cloud-1.")
    assert asked == {
        "version": 1,
        "cluster": "cloud",
        "owner": OWNER,
        "name_prefix": name_prefix(OWNER),
        "machine": "cloud-1",
        "token": order.token,
        "name": order.name,
        "tags": order.tags,
        "group": "gang-1",
        "type": "small",
        "zone": "a",
        "spot": True,
        "cpu": 1.0,
        "memory": 2**30,
        "gpu": 0,
        "join": {
            "server": order.join.server,
            "cluster": "cloud",
            "name": "cloud-1",
            "token": order.join.token,
            "join_by": order.join.join_by,
            "pin": "",
            "alone_for": 0,
            "notices": "",
        },
        "agent_options": [
            *("--cpu", "1", "--memory", "1Gi", "--gpu", "0", "--offer", "gpu:a100", "--label", "rack=r1")
        ],
    }


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (10, Refused(RefusalCause.CAPACITY, "")),
        (11, Refused(RefusalCause.QUOTA, "")),
        (12, Refused(RefusalCause.INVALID, "")),
        (13, Refused(RefusalCause.AUTH, "")),
        (75, NotNow("")),
        (1, Unknown("")),
        (2, Unknown("")),
        (126, Unknown("")),
    ],
)
def test_an_exit_code_says_whether_the_machine_exists(folder: Path, code: int, answer: Created) -> None:
    told = created(folder, f"echo first >&2; echo 'the cloud says no' >&2; exit {code}")
    assert told == replace(answer, why=f"the cloud says no; see {log_of(folder)}")
    assert log_of(folder).read_text() == "first\nthe cloud says no\n"
    assert log_of(folder).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("kill -9 $$", "sh ended with signal 9; see "),
        ("exit 3", "sh ended with exit code 3; see "),
        ("echo '{}'", "create wrote no answer that can be read: Object missing required field `id`"),
        ("echo made it", "create wrote no answer that can be read: JSON is malformed"),
        ("true", "create wrote no answer that can be read: Input data was truncated"),
        ("""echo '{"id": ""}'""", "create wrote no answer that can be read: the id is empty"),
        ("head -c 17000000 /dev/zero", "create wrote no answer that can be read: it has more than 16 MiB"),
    ],
)
def test_an_answer_that_cannot_be_read_is_unknown(folder: Path, script: str, why: str) -> None:
    answer = created(folder, script)
    assert isinstance(answer, Unknown)
    assert answer.why.startswith(why)


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(folder: Path) -> None:
    pids = folder / "pids"
    answer = created(folder, f"sleep 1000 & echo $! $$ > {pids}; wait", timeout="1s")
    assert answer == Unknown(f"sh took longer than 1s; see {log_of(folder)}")
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: not _lives(int(pid)), "its end")  # type: ignore[misc]


def test_a_program_that_ignores_term_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "GRACE", 0.1)
    pids = folder / "pids"
    script = f"trap '' TERM; echo $$ > {pids}; while :; do sleep 0.05; done"
    assert isinstance(created(folder, script, timeout="1s"), Unknown)
    wait_until(lambda: not _lives(int(pids.read_text())), "its end")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_program_leaves_in_the_background_keeps_nobody_waiting(folder: Path) -> None:
    answer = created(folder, f'sleep 1000 & echo $! > {folder}/pid; echo \'{{"id": "i-1"}}\'')
    assert answer == Made("i-1")
    os.kill(int((folder / "pid").read_text()), 9)


def test_a_program_that_does_not_start_made_nothing(folder: Path) -> None:
    form = CommandForm("no-such-program", "no-such-program", "no-such-program")
    provider = CommandKind().open(form, an_opening(folder))
    answer = run(provider.create(ORDER))
    assert isinstance(answer, NotNow)
    assert answer.why.startswith("no-such-program cannot be started: ")
    for call in (provider.list(), provider.destroy(["i-1"])):
        with pytest.raises(ProviderError, match="no-such-program cannot be started: "):
            run(call)
    assert [*run(provider.check([]))] == [answer.why]
    (line,) = CommandKind().missing(form, dict(os.environ), Path())
    assert line == "the provider command cannot run no-such-program; install it, or make it executable"


def test_only_our_machines_are_listed(folder: Path) -> None:
    prefix = name_prefix(OWNER)
    machines = [
        {"id": "i-1", "state": "running", "tags": {"spillover-owner": OWNER, "spillover-machine": "cloud-1"}},
        {"id": "i-2", "state": "running", "tags": {"spillover-owner": OTHER}, "name": f"{prefix}cloud-2"},
        {"id": "i-3", "state": "running", "name": "database"},
        {"id": "i-4", "state": "stopping", "name": f"{prefix}cloud-4", "reason": "spot", "interrupted": True},
        {
            "id": "i-5",
            "state": "gone",
            "tags": {"spillover-owner": OWNER},
            "at": "2027-01-01T00:00:00Z",
            "disk": 1,
        },
    ]
    folder.mkdir()
    (folder / "answer").write_text(json.dumps({"machines": machines}))
    listing = run(opened(folder, f"cat {folder}/answer").list())
    assert listing.whole
    assert listing.machines == (
        Listed("i-1", Presence.RUNNING, "cloud-1", OWNER),
        Listed("i-4", Presence.STOPPING, name=f"{prefix}cloud-4", reason="spot", interrupted=True),
        Listed("i-5", Presence.GONE, "", OWNER, at=1_798_761_600_000_000_000),
    )


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'no route' >&2; exit 1", "failed: no route; see "),
        ("exit 75", "failed: sh ended with exit code 75; see "),
        ("echo '[]'", "wrote no answer that can be read: Expected `object`, got `array`"),
    ],
)
def test_a_listing_that_fails_is_no_empty_listing(folder: Path, script: str, why: str) -> None:
    provider = opened(folder, script)
    with pytest.raises(ProviderError) as listed:
        run(provider.list())
    assert str(listed.value).startswith(f"list {why}")
    with pytest.raises(ProviderError) as destroyed:
        run(provider.destroy(["i-1"]))
    assert str(destroyed.value).startswith(f"destroy {why}")


def test_a_partial_listing_says_why(folder: Path) -> None:
    provider = opened(folder, """echo '{"machines": [], "whole": false}'""")
    assert run(provider.list()).why == "list said that it is not whole"
    assert [*run(provider.check([]))] == ["list said that it is not whole"]


def test_destroy_gets_ids_and_need_not_answer(folder: Path) -> None:
    folder.mkdir()
    provider = opened(folder, f"cat > {folder}/asked")
    assert run(provider.destroy(["i-1", "i-2"])) == {}
    asked = json.loads((folder / "asked").read_text())
    assert (asked["ids"], asked["owner"], asked["cluster"]) == (["i-1", "i-2"], OWNER, CLUSTER)
    failing = opened(folder, """echo '{"failed": {"i-2": "protected", "i-9": "who"}}'""")
    assert run(failing.destroy(["i-1", "i-2"])) == {"i-2": "protected"}


def test_few_machines_are_created_at_a_time(folder: Path) -> None:
    script = f"""mkdir {folder}/busy || exit 12; sleep 0.05; rmdir {folder}/busy; echo '{{"id": "i"}}'"""
    folder.mkdir()
    provider = opened(folder, script, at_once=1)

    async def all_of_them() -> list[Created]:
        return await asyncio.gather(*[provider.create(SUITE.an_order(number)) for number in range(4)])

    assert run(all_of_them()) == [Made("i")] * 4


def test_a_program_has_the_variables_of_the_option_env(folder: Path) -> None:
    provider = opened(folder, """echo "{\\"id\\": \\"$REGION\\"}" """, env={"REGION": "north"})
    assert run(provider.create(ORDER)) == Made("north")


def test_logs_are_kept_for_a_week(folder: Path) -> None:
    created(folder, "echo done >&2; exit 1")
    log = log_of(folder)
    os.utime(log, (0, log.stat().st_mtime - programs.KEEP + 60))
    opened(folder, "true")
    assert log.exists()
    os.utime(log, (0, log.stat().st_mtime - 120))
    opened(folder, "true")
    assert not log.exists()


def test_options_that_make_no_sense_are_named() -> None:
    flaws = CommandKind().check(CommandForm("./create 'x", [], "./destroy", timeout="0s"), [])
    assert [(flaw.path, flaw.message) for flaw in flaws] == [
        (("create",), '"./create \'x" is not a command: No closing quotation'),
        (("list",), "is missing; write the program that does this: list: /path/to/program"),
        (("timeout",), "'0s' is out of range; the minimum is 0.1s"),
    ]
    assert not CommandKind().check(CommandForm("a", "b", "c"), [])


# --- whole clusters

MAKING = MakerSuite()


def maker(folder: Path, script: str) -> CommandMaker:
    """A maker whose five programs are one shell script; $1 is which."""
    names = ("create", "list", "destroy", "kubeconfig", "resize")
    words: dict[str, Any] = {each: ["sh", "-c", script, "sh", each] for each in names}
    form = CommandForm(**words)
    assert CommandKind().makes_clusters(form)
    found = CommandKind().open(form, an_opening(folder))
    assert isinstance(found, CommandMaker)
    return found


def test_create_gets_the_size_of_a_cluster_and_the_labels_of_its_nodes(folder: Path) -> None:
    offer = replace(MAKING.offer, zone="a", labels={"rack": "r1"})
    made = maker(folder, f'cat > {folder}/asked; echo \'{{"id": "c-1"}}\'')
    assert run(made.create(MAKING.an_order(offer=offer, nodes=3))) == Made("c-1")
    asked = json.loads((folder / "asked").read_text())
    assert asked["nodes"] == 3
    assert asked["labels"] == {
        "spillover.dev/type": "small",
        "spillover.dev/zone": "a",
        "spillover.dev/market": "on-demand",
        "rack": "r1",
    }
    assert not {"join", "agent_options", "user_data"} & asked.keys(), "no agent joins"


def test_a_listing_tells_the_nodes_of_clusters(folder: Path) -> None:
    folder.mkdir()
    tags = {"spillover-owner": OWNER}
    machines: list[dict[str, Any]] = [
        {"id": "c-1", "state": "running", "tags": tags, "nodes": 3},
        {"id": "c-2", "state": "pending", "tags": tags},
    ]
    (folder / "answer").write_text(json.dumps({"machines": machines}))
    listing = run(maker(folder, f"cat {folder}/answer").list())
    assert [each.nodes for each in listing.machines] == [3, None]
    (folder / "answer").write_text(json.dumps({"machines": [machines[0] | {"nodes": -1}]}))
    with pytest.raises(ProviderError, match="Expected `int` >= 0"):
        run(maker(folder, f"cat {folder}/answer").list())


def test_the_output_of_the_program_is_the_kubeconfig(folder: Path) -> None:
    text = run(
        maker(folder, f'test $1 = kubeconfig && cat > {folder}/asked; echo "kind: Config"').kubeconfig("c-1")
    )
    assert text == "kind: Config\n"
    asked = json.loads((folder / "asked").read_text())
    assert (asked["id"], asked["owner"], asked["cluster"]) == ("c-1", OWNER, CLUSTER)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'no such cluster' >&2; exit 1", "kubeconfig failed: no such cluster; see "),
        ("true", "kubeconfig wrote nothing; it must write the kubeconfig to standard output"),
        ("printf '\\377\\376'", "kubeconfig wrote something else than text"),
        ("head -c 17000000 /dev/zero", "kubeconfig wrote more than 16 MiB"),
    ],
)
def test_a_kubeconfig_that_is_none_is_told(folder: Path, script: str, why: str) -> None:
    with pytest.raises(ProviderError) as failed:
        run(maker(folder, script).kubeconfig("c-1"))
    assert str(failed.value).startswith(why)


def test_resize_gets_the_nodes_to_have_and_those_to_drop(folder: Path) -> None:
    run(maker(folder, f"cat > {folder}/asked").resize("c-1", 2, ["n3", "n1"]))
    asked = json.loads((folder / "asked").read_text())
    assert (asked["id"], asked["nodes"], asked["drop"]) == ("c-1", 2, ["n3", "n1"])
    with pytest.raises(ProviderError, match="resize failed: it is gone; see "):
        run(maker(folder, "echo it is gone >&2; exit 3").resize("c-1", 2, []))


@pytest.mark.parametrize(("there", "missing"), [("kubeconfig", "resize"), ("resize", "kubeconfig")])
def test_one_program_of_a_maker_without_the_other_is_a_mistake(there: str, missing: str) -> None:
    form = replace(CommandForm("a", "b", "c"), **{there: "d"})
    (flaw,) = CommandKind().check(form, [])
    assert (flaw.path, flaw.message) == (
        (missing,),
        (
            f"is missing; write the program that does this: {missing}: /path/to/program "
            "(whole clusters need both kubeconfig and resize)"
        ),
    )
    assert not CommandKind().makes_clusters(CommandForm("a", "b", "c"))


def test_programs_of_a_maker_that_are_not_there_are_named() -> None:
    form = CommandForm("sh", "sh", "sh", kubeconfig="sh", resize="no-such-program")
    (line,) = CommandKind().missing(form, dict(os.environ), Path())
    assert line == "the provider command cannot run no-such-program; install it, or make it executable"
