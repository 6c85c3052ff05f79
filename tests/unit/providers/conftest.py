"""Clouds that run in this process, one for all tests."""

from collections.abc import Iterator

import pytest

from tests.support.clouds.ec2 import Ec2Server, ec2_server


@pytest.fixture(scope="session")
def ec2_account() -> Iterator[Ec2Server]:
    with ec2_server() as server:
        yield server


@pytest.fixture
def ec2(ec2_account: Ec2Server) -> Iterator[Ec2Server]:
    """EC2 without machines and faults."""
    ec2_account.mend()
    ec2_account.reset()
    yield ec2_account
    ec2_account.mend()
