"""Generates the blocking client from the asyncio client: `make client`.

The two differ only in words: the blocking one awaits nothing, names lose their `Async`, and a few calls have a blocking
counterpart. Any other difference belongs in the generators of steps that both carry out (`client/steps.py`). A test
compares the generated files with the stored ones.
"""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import spillover.client

CLIENT: Final = Path(spillover.client.__file__).parent
SOURCE: Final = CLIENT / "asynchronous"
TARGET: Final = CLIENT / "synchronous"
MODULES: Final = ("calls.py", "client.py", "sender.py")
_RULES: Final = (
    (r"for asyncio\b", "for code that blocks"),
    (r"\bclient\.asynchronous\b", "client.synchronous"),
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"  # noqa: ASYNC\d+.*", ""),
    # Users get an iterator. Inside, the reader closes its generator.
    (r"\bAsyncGenerator\[(.+), None\]", r"Iterator[\1]"),
    (r"\bimport AsyncGenerator\b", "import Generator, Iterator"),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\b__a(enter|exit|iter)__\b", r"__\1__"),
    (r"\ba(close|closing|iter_bytes|read)\b", r"\1"),
    (r"\basyncio\.to_thread\(([\w.]+)(, )?", r"\1("),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"\bimport asyncio\b", "import time"),
)
"""Replacements, in this order."""


def generated(module: str) -> str:
    """Generate a module of the blocking client."""
    text = (SOURCE / module).read_text()
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    text = f"# Generated from client/asynchronous/{module} by `make client`: change that one.\n{text}"
    name = str(TARGET / module)
    text = _ruff(text, name, "check", "--select=I,F401,UP028", "--fix", "--unsafe-fixes", "--quiet")
    return _ruff(text, name, "format", "--quiet")


def _ruff(text: str, name: str, *command: str) -> str:
    """Run ruff on a text: sorts imports, uses `yield from` where possible, and joins short lines."""
    ruff = [sys.executable, "-m", "ruff", *command, f"--stdin-filename={name}", "-"]
    return subprocess.run(ruff, input=text, stdout=subprocess.PIPE, text=True, check=True).stdout


def main() -> None:
    """Write all modules."""
    for module in MODULES:
        (TARGET / module).write_text(generated(module))


if __name__ == "__main__":
    main()
