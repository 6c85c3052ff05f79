"""Finding commands, and how failures look."""

import os
import re
import shlex
import subprocess
import sys
from argparse import _SubParsersAction
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spillover import __version__
from spillover.cli import codes
from spillover.cli.habits import HABITS, READS
from spillover.cli.main import COMMANDS, load, make_parser
from spillover.client import Unreachable


def test_the_overview_names_every_command(spill: Callable[..., Any]) -> None:
    typed = spill("--help")
    assert typed.code == codes.OK
    assert all(f"  {name} " in typed.out for name in COMMANDS)


def test_no_command_at_all_prints_the_overview_and_is_refused(spill: Callable[..., Any]) -> None:
    typed = spill()
    assert (typed.code, typed.err) == (codes.REFUSED, "")
    assert typed.out.startswith("usage: spill COMMAND")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_every_command_ends_with_an_example_of_it(name: str, spill: Callable[..., Any]) -> None:
    typed = spill(name, "--help")
    assert typed.code == codes.OK
    _, _, example = typed.out.rpartition("\nexample:\n")
    assert example.strip()
    assert all(f"spill {name}" in line for line in example.strip().splitlines())


ACTIONS = [
    (name, action)
    for name in COMMANDS
    for place in make_parser(name, load(name))._actions
    if isinstance(place, _SubParsersAction)
    for action in place.choices
]


def test_some_commands_have_actions() -> None:
    assert {("token", "create"), ("cert", "init"), ("policy", "set")} <= set(ACTIONS)


@pytest.mark.parametrize(("name", "action"), ACTIONS)
def test_the_help_of_every_action_says_what_it_does_and_ends_with_an_example_of_it(
    name: str, action: str, spill: Callable[..., Any]
) -> None:
    typed = spill(name, action, "--help")
    assert typed.code == codes.OK
    told, _, example = typed.out.rpartition("\nexample:\n")
    assert re.search(r"^[A-Z].*\.$", told, re.MULTILINE | re.DOTALL)
    assert all(line.startswith(f"  spill {name} {action}") for line in example.rstrip().splitlines())
    words = shlex.split(example)[3:]
    assert make_parser(name, load(name)).read([action, *words]).action == action


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_says_what_it_does(name: str) -> None:
    assert all(action.help for action in make_parser(name, load(name))._actions)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_manual(name: str) -> None:
    manual = Path(__file__).parents[3] / "docs" / "command-line.md"
    assert f"| `spill {name}" in manual.read_text()


def test_a_command_that_is_not_there_is_refused_with_the_nearest(spill: Callable[..., Any]) -> None:
    assert spill("sumbit") == (2, "", "spill: unknown command 'sumbit'; did you mean `spill submit`?\n")
    assert spill("frobnicate") == (
        2,
        "",
        "spill: unknown command 'frobnicate'; `spill --help` lists commands\n",
    )


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("squeue", "ls"),
        ("status", "ls"),
        ("ps", "ls"),
        ("list", "ls"),
        ("jobs", "ls"),
        ("sbatch", "submit"),
        ("srun", "run"),
        ("scancel", "cancel"),
        ("kill", "cancel"),
        ("delete", "cancel"),
        ("rm", "cancel"),
        ("sinfo", "clusters"),
        ("sacct", "ls"),
        ("scontrol", "show"),
        ("log", "logs"),
        ("tail", "logs"),
        ("describe", "show"),
    ],
)
def test_a_command_of_slurm_or_unix_is_answered_in_one_line_with_ours(
    typed: str, ours: str, spill: Callable[..., Any]
) -> None:
    code, out, err = spill(typed)
    assert (code, out, err.count("\n")) == (codes.REFUSED, "", 1)
    assert err.startswith(f"spill: unknown command {typed!r}; `spill {ours}")


def test_answers_to_commands_of_other_tools_name_only_commands_that_exist() -> None:
    for typed, answer in HABITS.items():
        assert typed not in COMMANDS
        assert set(re.findall(r"`spill ([a-z]+)", answer)) <= set(COMMANDS)
    assert set(COMMANDS) > READS


@pytest.mark.parametrize("typed", ["squeues", "queues", "lease", "unset", "requests", "help-me", "reset"])
def test_a_word_that_is_no_typo_of_a_command_that_changes_things_does_not_suggest_it(
    typed: str, spill: Callable[..., Any]
) -> None:
    suggested = re.search(r"did you mean `spill ([a-z]+)`", spill(typed).err)
    assert suggested is None or suggested[1] in READS


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("requeu", "requeue"), ("cancle", "cancel"), ("rnu", "run"), ("hodl", "hold"), ("clustrs", "clusters")],
)
def test_a_typo_of_a_command_suggests_it(typed: str, meant: str, spill: Callable[..., Any]) -> None:
    assert spill(typed).err == f"spill: unknown command {typed!r}; did you mean `spill {meant}`?\n"


def test_an_option_before_the_command_is_refused_with_where_to_put_it(spill: Callable[..., Any]) -> None:
    typed = spill("--server", "http://127.0.0.1:9", "ls")
    assert typed == (2, "", "spill: options come after the command: `spill COMMAND --server`\n")


def test_help_of_a_command_can_be_asked_for_in_front(spill: Callable[..., Any]) -> None:
    assert spill("help", "submit").out == spill("submit", "--help").out != ""


def test_an_argument_that_is_not_text_is_refused(spill: Callable[..., Any], client: Any) -> None:
    assert spill("show", "a\udcff") == (2, "", "spill: argument 2 is not UTF-8 text\n")
    assert client.asked == []


@pytest.mark.parametrize("arguments", [["--help"], ["ls", "--help"], ["version"]])
def test_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "spillover.cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (codes.REFUSED, b"spill: No space left on device\n")


def test_a_wrong_option_is_one_line(spill: Callable[..., Any]) -> None:
    typed = spill("ls", "--flavour")
    assert (typed.code, typed.out) == (codes.REFUSED, "")
    assert typed.err == "spill: unrecognized arguments: --flavour (see `spill ls --help`)\n"


def test_an_option_that_is_not_there_is_refused_with_the_nearest(spill: Callable[..., Any]) -> None:
    told = "spill: unrecognized arguments: --sate x; did you mean --state? (see `spill ls --help`)\n"
    assert spill("ls", "--sate", "x") == (2, "", told)
    assert "did you mean --state?" in spill("ls", "--sate=x").err
    assert "did you mean" not in spill("ls", "x").err


def test_a_place_that_may_be_empty_can_stand_behind_options(spill: Callable[..., Any]) -> None:
    typed = spill("fetch", "train", "--list", "results")
    assert typed.err == "spill: --list writes nothing; remove the folder\n"
    for words in (
        ("fetch", "train", "--list", "a", "b"),
        ("fetch", "train", "a", "--list", "b"),
        ("token", "list", "x"),
    ):
        typed = spill(*words)
        assert typed.code == 2
        assert typed.err.startswith("spill: unrecognized arguments: ")
        assert typed.err.count("\n") == 1


def test_an_option_may_not_be_shortened(spill: Callable[..., Any]) -> None:
    assert spill("ls", "--proj", "vision").code == codes.REFUSED


def test_an_error_of_the_client_is_one_line_a_problem(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise Unreachable("no server answers\nstart one")

    monkeypatch.setattr(client, "job", fail)
    assert spill("show", "train") == (2, "", "spill: no server answers\nspill: start one\n")


def test_an_error_that_should_not_happen_is_one_line_too(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise ValueError("odd\nthing \x1b[31m")

    monkeypatch.setattr(client, "job", fail)
    typed = spill("show", "train")
    assert typed.code == codes.REFUSED
    assert typed.err == "spill: internal error: ValueError: odd thing �[31m; set SPILL_DEBUG=1 to see where\n"


def test_the_traceback_is_there_for_those_who_ask(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(client, "job", fail)
    monkeypatch.setenv("SPILL_DEBUG", "1")
    with pytest.raises(ValueError, match="odd"):
        spill("show", "train")


def test_ctrl_c_ends_a_command_quietly(
    client: Any, spill: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "job", interrupt)
    assert spill("show", "train") == (130, "", "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """Closed before anything is written, so that the very first flush fails."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "spillover.cli", "version"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (codes.BROKEN_PIPE, b"")


def test_the_version_is_printed(spill: Callable[..., Any]) -> None:
    assert spill("version") == (0, f"spillover {__version__}\n", "")
    assert spill("--version") == (0, f"spillover {__version__}\n", "")
    assert spill("version", "--json") == (0, f'{{"version":"{__version__}"}}\n', "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["version"],
        ["ls", "--help"],
        ["cancel", "--help"],
        ["completion", "bash", "--words", "s"],
        ["completion", "bash", "--words", "ls", "--st"],
    ],
)
def test_version_help_and_completion_load_nothing_heavy(arguments: list[str]) -> None:
    probe = (
        f"import sys; from spillover.cli.main import main; main({arguments});"
        "print([name for name in ('asyncio', 'httpx', 'msgspec', 'rich', 'yaml', 'grpc') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("ls", "--state", "runing"), "'runing' is not a state; did you mean RUNNING?"),
        (("ls", "--state", "PD"), "'PD' is not a state; did you mean queued,held?"),
        (("ls", "--since", "yesterday"), "'yesterday' is not a duration; write 90s, 10m, 1h30m or 2d"),
        (("ls", "--limit", "0"), "'0' is not a whole number of at least 1"),
        (("wait", "train", "--timeout", "-1s"), "expected one argument"),
        (("set", "train", "--priority", "high"), "'high' is not a whole number"),
        (("set", "train"), "nothing to change; give an option such as --walltime"),
        (("logs", "train", "--attempt", "x"), "'x' is not a whole number of at least 1"),
        (("cancel",), "give either jobs or filters"),
        (("schema", "jobs"), "argument job|config: 'jobs' has no schema; write job or config"),
    ],
)
def test_a_wrong_argument_is_refused_with_what_to_write(
    arguments: tuple[str, ...], says: str, spill: Callable[..., Any], client: Any
) -> None:
    typed = spill(*arguments)
    assert (typed.code, typed.out, client.asked) == (codes.REFUSED, "", [])
    assert typed.err.count("\n") == 1
    assert says in typed.err
