"""The client that blocks is the one for asyncio, without the waiting for others."""

import ast
import re

import pytest

from tests.support.unasync import MODULES, SOURCE, TARGET, generated


@pytest.mark.parametrize("module", MODULES)
def test_the_client_that_blocks_is_generated_from_the_other(module: str) -> None:
    assert (TARGET / module).read_text() == generated(module), "run `make client`"


def test_every_module_of_the_one_is_one_of_the_other() -> None:
    for folder in (SOURCE, TARGET):
        assert {path.name for path in folder.glob("*.py")} == {"__init__.py", *MODULES}


@pytest.mark.parametrize("module", MODULES)
def test_nothing_of_asyncio_is_left_in_it(module: str) -> None:
    text = generated(module)
    assert not re.search(
        r"\bA?sync(?!hronous)|await|\ba(close|enter|exit|iter)", text.replace("make client", "")
    )
    kinds = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    assert not any(isinstance(node, kinds) for node in ast.walk(ast.parse(text)))
