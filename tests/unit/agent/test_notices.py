"""An agent asks the metadata service of its cloud whether its machine will be taken back."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from spillover.agent.notices import Ec2Notices, GceNotices, NoticesUnavailable, watch
from spillover.model.units import SECOND, parse_time
from tests.support.metadata import EC2_PATH, MetadataService, metadata_service
from tests.support.waiting import until

NOTICE = b'{"action": "terminate", "time": "2026-09-18T08:22:00Z"}'
UNTIL = parse_time("2026-09-18T08:22:00Z")


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with metadata_service() as found:
        yield found


def test_ec2_says_when_it_takes_a_machine_back(service: MetadataService) -> None:
    notices = Ec2Notices(service.url)
    assert notices.ask() is None
    service.notice = NOTICE
    assert notices.ask() == UNTIL
    assert service.asked == ["PUT /latest/api/token", f"GET {EC2_PATH}", f"GET {EC2_PATH}"]


def test_a_token_of_the_metadata_service_that_expired_is_replaced(service: MetadataService) -> None:
    notices = Ec2Notices(service.url)
    notices.ask()
    service.expire()
    service.notice = NOTICE
    assert notices.ask() == UNTIL


@pytest.mark.parametrize("notice", [b"{}", b"soon", b'{"time": 5}', b'{"time": "soon"}', b"[]"])
def test_an_answer_that_is_no_notice_is_not_taken_for_one(service: MetadataService, notice: bytes) -> None:
    service.notice = notice
    with pytest.raises(NoticesUnavailable, match="the metadata service answered 200"):
        Ec2Notices(service.url).ask()


def test_compute_engine_leaves_half_a_minute_from_the_announcement(service: MetadataService) -> None:
    now = 100 * SECOND
    notices = GceNotices(service.url, lambda: now)
    assert notices.ask() is None
    service.preempted = b"TRUE"
    assert notices.ask() == 130 * SECOND
    now += 5 * SECOND
    assert notices.ask() == 130 * SECOND, "not from when it was asked last"
    service.preempted = b"maybe"
    with pytest.raises(NoticesUnavailable):
        notices.ask()


async def test_a_service_that_fails_is_asked_again_and_said_once(
    service: MetadataService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "spillover.agent")
    service.broken = True
    seen: list[int] = []
    watching = asyncio.create_task(watch(Ec2Notices(service.url), seen.append, poll=0.01))
    await until(lambda: len(service.asked) >= 4, "some questions")
    assert not seen
    service.broken, service.notice = False, NOTICE
    async with asyncio.timeout(5):
        await watching
    assert seen == [UNTIL]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, said
    assert "gives no token: it answered 503; asking again" in said[0]
    assert "this machine will be taken back at 2026-09-18T08:22:00" in said[1]
