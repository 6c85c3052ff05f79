"""`spill completion`: prints scripts that let a shell complete commands, options and jobs."""

from argparse import REMAINDER, SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from typing import Final

from spillover.cli import codes
from spillover.cli.command import Command, Context

_BASH: Final = r"""# Completion of spill for bash.
_spill() {
    local line word
    COMPREPLY=()
    local words=("${COMP_WORDS[@]:1:COMP_CWORD}")
    local current="${COMP_WORDS[COMP_CWORD]}"
    while IFS= read -r line; do
        word="${line%%$'\t'*}"
        case "$word" in
            :files) compopt -o default 2>/dev/null; COMPREPLY=(); return ;;
            :folders) compopt -o dirnames 2>/dev/null; COMPREPLY=(); return ;;
        esac
        COMPREPLY+=("$word")
    done < <(spill completion bash --words "${words[@]}" 2>/dev/null)
    # bash takes "=" for the end of a word: what stands before it is typed already.
    if [[ "$current" != *=* && "${COMP_WORDS[COMP_CWORD-1]}" == "=" ]]; then
        COMPREPLY=("${COMPREPLY[@]#*=}")
    fi
}
complete -F _spill spill
"""
_ZSH: Final = r"""#compdef spill
# Completion of spill for zsh.
_spill() {
    local line word about
    local -a found shown
    for line in "${(@f)$(spill completion zsh --words "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        word="${line%%$'\t'*}"
        about="${line#*$'\t'}"
        case "$word" in
            '') continue ;;
            :files) _files; return ;;
            :folders) _files -/; return ;;
        esac
        found+=("$word")
        [[ "$about" == "$line" ]] && shown+=("$word") || shown+=("$word -- $about")
    done
    (( $#found )) && compadd -l -d shown -a found
}
if [[ "$funcstack[1]" == "_spill" ]]; then _spill "$@"; else compdef _spill spill; fi
"""
_FISH: Final = r"""# Completion of spill for fish.
function __spill_complete
    set -l words (commandline -opc)[2..-1] (commandline -ct)
    for line in (spill completion fish --words $words 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path (commandline -ct)
            case :folders
                __fish_complete_directories (commandline -ct)
            case '*'
                echo $line
        end
    end
end
complete -c spill -f -a '(__spill_complete)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("shell", type=_shell, metavar="bash|zsh|fish", help="your shell")
    # For the scripts: the words after `spill`; the user is typing the last one.
    parser.add_argument("--words", nargs=REMAINDER, help=SUPPRESS)


def _shell(text: str) -> str:
    """Parse the name of a supported shell."""
    if text not in SCRIPTS:
        raise ArgumentTypeError(f"{text!r} is not a supported shell; write bash, zsh or fish")
    return text


def _run(args: Namespace, context: Context) -> int:
    if args.words is None:
        print(SCRIPTS[args.shell], end="", file=context.out.out)
        return codes.OK
    from spillover.cli.completing import complete  # noqa: PLC0415 - not needed to print a script

    words = _joined(args.words) if args.shell == "bash" else args.words
    for word in complete(words, context.connect):
        print(f"{word.text}\t{word.about}" if word.about else word.text, file=context.out.out)
    return codes.OK


def _joined(words: list[str]) -> list[str]:
    """Join the three words that bash makes of `--option=value`."""
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1].startswith("--"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


COMMANDS = {
    "completion": Command(
        "Print a completion script for your shell. It completes commands, options, jobs and agents.",
        _configure,
        _run,
        'eval "$(spill completion bash)"     # in ~/.bashrc\n'
        'eval "$(spill completion zsh)"      # in ~/.zshrc, after compinit\n'
        "spill completion fish > ~/.config/fish/completions/spill.fish",
    )
}
