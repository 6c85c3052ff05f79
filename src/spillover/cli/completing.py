"""Completes command lines for shells: commands, options, their values, and names of jobs and agents on the server."""

from argparse import SUPPRESS, Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from spillover.cli.arguments import state, states
from spillover.cli.command import add_connection
from spillover.cli.main import COMMANDS, load, make_parser
from spillover.cli.printing.shown import STATES

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillover.client import Client

FILES: Final = ":files"
"""Asks the shell to complete file names itself."""
FOLDERS: Final = ":folders"
MOST_JOBS: Final = 200
_FILES: Final = frozenset({"FILE", "FILE|synthetic:..."})
_FOLDERS: Final = frozenset({"DIR"})
_SUMMARY: Final = 60
"""Characters of a description."""


class Word(NamedTuple):
    """A possible next word."""

    text: str
    about: str = ""


def complete(words: Sequence[str], connect: "Callable[[Namespace], Client]") -> list[Word]:
    """Return the words that can replace the last, incomplete one; the first word is the name of the command."""
    typed = words[-1] if words else ""
    if len(words) <= 1:
        known = [Word(name, entry.summary) for name, entry in COMMANDS.items()]
        return _beginning(known, typed)
    name, *before = words[:-1]
    if name == "help" and not before:
        return _beginning([Word(name, entry.summary) for name, entry in COMMANDS.items()], typed)
    if name not in COMMANDS:
        return []
    if "--" in before:
        return [Word(FILES)]
    return _of_command(make_parser(name, load(name)), before, typed, connect)


def _of_command(
    parser: ArgumentParser, before: Sequence[str], typed: str, connect: "Callable[[Namespace], Client]"
) -> list[Word]:
    """Complete a word behind a command and its previous arguments."""
    options: dict[str, Action] = dict(parser._option_string_actions)  # noqa: SLF001 - argparse has no public way
    places = [action for action in parser._actions if not action.option_strings]  # noqa: SLF001 - likewise
    given: dict[str, str] = {}
    waiting: Action | None = None
    stood = 0
    for at, word in enumerate(before):
        if waiting is not None:
            given[waiting.dest], waiting = word, None
        elif word.startswith("-") and word in options:
            waiting = options[word] if options[word].nargs is None else None
        elif word.startswith("--"):
            option, _, value = word.partition("=")
            if option in options:
                given[options[option].dest] = value
        elif stood < len(places) and isinstance(chooser := places[stood], _SubParsersAction):
            chosen = chooser.choices.get(word)
            return _of_command(chosen, before[at + 1 :], typed, connect) if chosen is not None else []
        else:
            stood += 0 if stood < len(places) and places[stood].nargs in {"+", "*", "..."} else 1
    if waiting is not None:
        return _values(waiting, typed, given, connect)
    if typed.startswith("-"):
        option, equals, value = typed.partition("=")
        if equals and option in options:
            return [
                Word(f"{option}={word.text}", word.about)
                for word in _values(options[option], value, given, connect)
                if not word.text.startswith(":")
            ]
        shown = [Word(text, _about(action)) for text, action in options.items() if action.help != SUPPRESS]
        return _beginning(shown, typed)
    return _values(places[stood], typed, given, connect) if stood < len(places) else []


def _values(  # noqa: PLR0911 - one answer for each kind of word
    action: Action, typed: str, given: dict[str, str], connect: "Callable[[Namespace], Client]"
) -> list[Word]:
    """Complete the value of an option or of a positional argument."""
    if isinstance(action, _SubParsersAction):
        return _beginning([Word(each.dest, _about(each)) for each in action._choices_actions], typed)  # noqa: SLF001 - argparse has no public way
    if action.choices is not None:
        return _beginning([Word(str(choice)) for choice in action.choices], typed)
    if action.type in {state, states}:
        return _beginning([Word(each) for each in STATES], typed.upper())
    meant = action.metavar if isinstance(action.metavar, str) else ""
    if meant == "JOB":
        return _beginning(_asked(given, connect, _jobs), typed)
    if meant == "AGENT":
        return _beginning(_asked(given, connect, _agents), typed)
    if meant in _FILES:
        return [Word(FILES)]
    if meant in _FOLDERS:
        return [Word(FOLDERS)]
    if "|" in meant:
        return _beginning([Word(choice) for choice in meant.split("|")], typed)
    return []


def _asked(
    given: dict[str, str],
    connect: "Callable[[Namespace], Client]",
    ask: "Callable[[Client], list[Word]]",
) -> list[Word]:
    """Ask the server; return nothing on any error, because a shell must not print errors while a user types."""
    parser = ArgumentParser(add_help=False)
    add_connection(parser)
    usual = vars(parser.parse_args([]))
    args = Namespace(**{name: given.get(name, value) for name, value in usual.items()})
    try:
        with connect(args) as client:
            return ask(client)
    except Exception:  # noqa: BLE001 - see the docstring
        return []


def _jobs(client: "Client") -> list[Word]:
    """Return the ids of jobs, and the names that are unique."""
    page = list(client.jobs(limit=MOST_JOBS))
    found = [Word(job.id, f"{job.name} {job.state}") for job in page]
    names = [job.name for job in page]
    return found + [Word(name) for name in dict.fromkeys(names) if names.count(name) == 1]


def _agents(client: "Client") -> list[Word]:
    """Return the names of agents that are unique, and all names with their clusters."""
    found = client.agents()
    names = [agent.name for agent in found]
    short = [Word(agent.name, agent.state) for agent in found if names.count(agent.name) == 1]
    return short + [Word(f"{agent.cluster}/{agent.name}", agent.state) for agent in found]


def _about(action: Action) -> str:
    """Shorten the help of an option."""
    text = " ".join((action.help or "").split())
    return text if len(text) <= _SUMMARY else f"{text[: _SUMMARY - 1].rstrip()}…"


def _beginning(words: Iterable[Word], typed: str) -> list[Word]:
    """Return the words that begin with `typed`."""
    return [word for word in words if word.text.startswith(typed)]
