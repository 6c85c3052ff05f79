from collections.abc import AsyncIterator

import pytest

from spillover.testing.inside import Inside, leading


@pytest.fixture
async def control() -> AsyncIterator[Inside]:
    async with leading() as inside:
        yield inside
