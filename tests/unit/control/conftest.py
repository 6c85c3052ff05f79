from collections.abc import AsyncIterator

import pytest

from tests.support.inside import Inside, leading


@pytest.fixture
async def control() -> AsyncIterator[Inside]:
    async with leading() as inside:
        yield inside
