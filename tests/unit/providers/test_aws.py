"""The provider aws against moto as an HTTP server, in a wrapper that has faults."""

import asyncio
import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec import structs

from spillover.model.ids import ClusterName
from spillover.model.pools import MachineId, Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.ports.provider import (
    Join,
    Made,
    NotNow,
    Order,
    Presence,
    Provider,
    ProviderError,
    Refused,
    Unknown,
    order_token,
)
from spillover.providers.aws.calls import Limits
from spillover.providers.aws.options import AwsForm
from spillover.providers.aws.provider import BATCH, AwsProvider
from spillover.providers.userdata import user_data
from spillover.testing.provider_suite import OTHER, OWNER, Fault, ProviderSuite, an_opening
from tests.support.clouds.ec2 import KEYS, REGION, ZONES, Ec2Server
from tests.support.waiting import until

OFFER = Offer("m5.large", Resources(2000, 7 * 2**30), 115_000, ZONES[0])
SPOT = structs.replace(OFFER, spot=True)
QUICK = Limits(connect=2.0, read=5.0, whole=10.0)
Open = Callable[..., AwsProvider]


@pytest.fixture
def image(ec2: Ec2Server) -> str:
    """An image in the account."""
    return str(ec2.image())


@pytest.fixture
def open_provider(ec2: Ec2Server, image: str, tmp_path: Path) -> Open:
    def opened(owner: str = OWNER, limits: Limits = QUICK, **options: Any) -> AwsProvider:
        form = AwsForm(**({"region": REGION, "image": image, "endpoint": ec2.url} | options))
        return AwsProvider(form, an_opening(tmp_path, owner, KEYS), limits)

    return opened


def an_order(number: int = 1, offer: Offer = OFFER, **other: Any) -> Order:
    machine = MachineId(f"cloud-{number}")
    join = Join("127.0.0.1:9", ClusterName("cloud"), machine, "secret", 1_900_000_000 * 10**9)
    return structs.replace(Order(machine, order_token(OWNER, machine), OWNER, offer, join), **other)


async def made(provider: Provider, order: Order) -> Made:
    answer = await provider.create(order)
    assert isinstance(answer, Made), answer
    return answer


class TestContract(ProviderSuite):
    """What holds for every provider."""

    offer: ClassVar[Offer] = OFFER
    bad_offer: ClassVar[Offer | None] = structs.replace(OFFER, type="m5.enormous")
    faults: ClassVar[frozenset[Fault]] = frozenset(Fault)

    @pytest.fixture(autouse=True)
    def _account(self, ec2: Ec2Server) -> None:
        self._ec2 = ec2

    def provoke(self, fault: Fault) -> None:
        ec2 = self._ec2
        match fault:
            case Fault.CAPACITY:
                ec2.fail("RunInstances", "InsufficientInstanceCapacity", 500)
            case Fault.QUOTA:
                ec2.fail("RunInstances", "VcpuLimitExceeded")
            case Fault.INVALID:
                ec2.fail("RunInstances", "InvalidAMIID.NotFound")
            case Fault.AUTH:
                ec2.fail("RunInstances", "UnauthorizedOperation", 403)
            case Fault.THROTTLED:
                ec2.fail("RunInstances", "RequestLimitExceeded", 503)
            case Fault.UNREACHABLE:
                ec2.refuse_connections()
            case Fault.LOST_ANSWER | Fault.LOST_REQUEST:
                ec2.lose("RunInstances", arrives=fault is Fault.LOST_ANSWER)
            case Fault.PARTIAL:
                ec2.fail(
                    "DescribeInstances", "InternalError", 500, when=lambda asked: "tag:Name" in asked.values()
                )
            case Fault.LOST_TAGS:
                ec2.lose_tags("Name")
            case Fault.TAKEN_BACK:
                ec2.take_back()
            case Fault.REFUSED_DESTROY:
                for machine in ec2.machines:
                    machine.disable_api_termination = True

    def mend(self) -> None:
        self._ec2.mend()


# --- creating


async def test_a_machine_is_created_as_the_order_and_the_options_say(
    ec2: Ec2Server, open_provider: Open
) -> None:
    provider = open_provider(setup=["echo hello"], tags={"team": "physics"}, disk="40Gi")
    order = an_order()
    answer = await made(provider, order)
    (machine,) = ec2.machines
    assert (machine.id, machine.instance_type, machine.placement.zone) == (answer.id, "m5.large", ZONES[0])
    assert answer.at is not None
    assert abs(answer.at - time.time_ns()) < 60 * 10**9
    assert base64.b64decode(str(machine.user_data)).decode() == user_data(order, ["echo hello"])
    assert machine.instance_initiated_shutdown_behavior == "terminate"
    assert (machine.metadata_options.http_tokens, machine.metadata_options.http_put_response_hop_limit) == (
        "required",
        1,
    )
    tags = {each["key"]: each["value"] for each in machine.get_tags()}
    assert tags == {"team": "physics", "Name": order.name, **order.tags}
    ((device, volume),) = machine.get_block_device_mapping
    assert device == "/dev/sda1"
    assert volume.delete_on_termination
    (disk,) = ec2.backend.describe_volumes(volume_ids=[volume.volume_id])
    assert (disk.size, disk.volume_type) == (40, "gp3")
    assert {each["key"]: each["value"] for each in disk.get_tags()} == tags
    assert machine.client_token == order.token
    await provider.close()


async def test_a_spot_machine_is_asked_for_once_and_terminated_when_taken_back(
    ec2: Ec2Server, open_provider: Open
) -> None:
    await made(open_provider(), an_order(offer=SPOT))
    (machine,) = ec2.machines
    assert machine.lifecycle == "spot"
    (asked,) = [asked for action, asked in ec2.calls if action == "RunInstances"]
    options = {name.rpartition(".")[2]: value for name, value in asked.items() if "MarketOptions" in name}
    assert options == {
        "MarketType": "spot",
        "SpotInstanceType": "one-time",
        "InstanceInterruptionBehavior": "terminate",
    }


async def test_a_machine_goes_to_the_subnet_of_its_zone(ec2: Ec2Server, open_provider: Open) -> None:
    subnets = {zone: ec2.subnet(zone) for zone in ZONES[:2]}
    groups = [ec2.security_group()]
    provider = open_provider(subnets=subnets, security_groups=groups)
    await made(provider, an_order(1, structs.replace(OFFER, zone=ZONES[1])))
    (machine,) = ec2.machines
    assert (machine.subnet_id, machine.placement.zone) == (subnets[ZONES[1]], ZONES[1])
    assert [each.id for each in machine.security_groups] == groups
    private = open_provider(subnets=subnets, security_groups=groups, public_ip=False)
    await made(private, an_order(2))
    (machine,) = [each for each in ec2.machines if each is not machine]
    assert machine.subnet_id == subnets[ZONES[0]]
    assert machine.public_ip is None


async def test_a_launch_template_gives_what_the_options_leave_out(
    ec2: Ec2Server, image: str, open_provider: Open
) -> None:
    ec2.template("gpu-nodes", {"ImageId": image, "InstanceType": "t3.micro", "KeyName": "ops"})
    await made(open_provider(image=None, launch_template="gpu-nodes:1"), an_order())
    (machine,) = ec2.machines
    assert (machine.image_id, machine.instance_type) == (image, "m5.large")


async def test_machines_of_a_gang_are_near_each_other(ec2: Ec2Server, open_provider: Open) -> None:
    provider = open_provider(placement_group="close")
    await made(provider, an_order(1))
    await made(provider, an_order(2, group="job-7"))
    groups = [asked.get("Placement.GroupName") for action, asked in ec2.calls if action == "RunInstances"]
    assert groups == [None, "close"]


async def test_types_have_their_own_images(ec2: Ec2Server, image: str, open_provider: Open) -> None:
    one, family = ec2.image(), ec2.image()
    provider = open_provider(images={"g5.xlarge": one, "g5": family})
    for number, type_ in enumerate(("m5.large", "g5.xlarge", "g5.2xlarge")):
        await made(provider, an_order(number, structs.replace(OFFER, type=type_)))
    assert [each.image_id for each in ec2.machines] == [image, one, family]


# --- what answers mean


@pytest.mark.parametrize(
    ("code", "status", "cause"),
    [
        ("InsufficientInstanceCapacity", 500, RefusalCause.CAPACITY),
        ("InsufficientHostCapacity", 500, RefusalCause.CAPACITY),
        ("SpotMaxPriceTooLow", 400, RefusalCause.CAPACITY),
        ("Unsupported", 400, RefusalCause.CAPACITY),
        ("InsufficientFreeAddressesInSubnet", 400, RefusalCause.CAPACITY),
        ("VcpuLimitExceeded", 400, RefusalCause.QUOTA),
        ("InstanceLimitExceeded", 400, RefusalCause.QUOTA),
        ("MaxSpotInstanceCountExceeded", 400, RefusalCause.QUOTA),
        ("VolumeLimitExceeded", 400, RefusalCause.QUOTA),
        ("UnauthorizedOperation", 403, RefusalCause.AUTH),
        ("AuthFailure", 401, RefusalCause.AUTH),
        ("ExpiredToken", 400, RefusalCause.AUTH),
        ("RequestExpired", 400, RefusalCause.AUTH),
        ("InvalidParameterValue", 400, RefusalCause.INVALID),
        ("InvalidSubnetID.NotFound", 400, RefusalCause.INVALID),
        ("SomethingNew", 400, RefusalCause.INVALID),
    ],
)
async def test_a_refusal_has_the_cause_that_its_code_names(
    ec2: Ec2Server, open_provider: Open, code: str, status: int, cause: RefusalCause
) -> None:
    ec2.fail(
        "RunInstances", code, status, message="The words of AWS.\n Encoded authorization failure message: Qx7"
    )
    answer = await open_provider().create(an_order())
    assert answer == Refused(cause, f"{code}: The words of AWS.")
    assert ec2.count("RunInstances") == 1, "boto3 tried again on its own"


@pytest.mark.parametrize(
    ("code", "status"), [("RequestLimitExceeded", 503), ("Throttling", 400), ("SomethingNew", 429)]
)
async def test_an_order_that_came_too_fast_may_be_repeated(
    ec2: Ec2Server, open_provider: Open, code: str, status: int
) -> None:
    ec2.fail("RunInstances", code, status, headers={"Retry-After": "7"})
    assert await open_provider().create(an_order()) == NotNow(f"{code}: the wrapper says so", 7.0)
    assert ec2.count("RunInstances") == 1


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("InternalError", 500),
        ("ServiceUnavailable", 503),
        ("Unavailable", 503),
        ("", 503),
        ("", 403),  # of a proxy
        ("404", 404),
        ("RequestTimeout", 400),
    ],
)
async def test_after_an_error_that_says_nothing_of_the_order_the_machine_may_exist(
    ec2: Ec2Server, open_provider: Open, code: str, status: int
) -> None:
    ec2.fail("RunInstances", code, status)
    answer = await open_provider().create(an_order())
    assert isinstance(answer, Unknown), answer
    assert ec2.count("RunInstances") == 1


async def test_the_older_form_of_codes_means_the_same(ec2: Ec2Server, open_provider: Open) -> None:
    ec2.fail("RunInstances", "Server.InsufficientInstanceCapacity", 500)
    answer = await open_provider().create(an_order())
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.CAPACITY


async def test_an_answer_that_cannot_be_read_leaves_the_order_unknown(
    ec2: Ec2Server, open_provider: Open
) -> None:
    ec2.garble("RunInstances")
    provider = open_provider()
    assert isinstance(await provider.create(an_order()), Unknown)
    ec2.mend()
    await made(provider, an_order())
    assert len(ec2.machines) == 1


async def test_a_late_answer_counts_as_lost_and_the_same_order_finds_its_machine(
    ec2: Ec2Server, open_provider: Open
) -> None:
    late = ec2.delay("RunInstances")
    answer = await open_provider(limits=Limits(read=0.3)).create(an_order())
    assert isinstance(answer, Unknown), answer
    assert late.go is not None
    late.go.set()
    again = await made(open_provider(), an_order())
    assert [each.id for each in ec2.machines] == [again.id]


async def test_a_call_that_drips_is_bounded_as_a_whole(ec2: Ec2Server, open_provider: Open) -> None:
    ec2.delay("RunInstances")
    answer = await open_provider(limits=Limits(read=30, whole=0.5)).create(an_order())
    assert answer == Unknown("EC2 did not answer run_instances in 0.5 s")


async def test_orders_that_wait_for_a_thread_were_surely_not_sent(
    ec2: Ec2Server, open_provider: Open
) -> None:
    held = ec2.delay("RunInstances")
    provider = open_provider(limits=Limits(threads=1, read=30, whole=1.5))
    first = asyncio.create_task(provider.create(an_order(1)))
    await until(held.arrived.is_set, "the first order arriving")
    assert await provider.create(an_order(2)) == NotNow("all 1 connections to EC2 are busy")
    assert isinstance(await first, Unknown)
    assert ec2.count("RunInstances") == 1


async def test_an_order_whose_options_changed_finds_the_machine_of_its_token(
    ec2: Ec2Server, open_provider: Open
) -> None:
    first = await made(open_provider(), an_order())
    changed = await open_provider(setup=["echo other"]).create(an_order())
    assert changed == first
    other = await open_provider().create(an_order(offer=structs.replace(OFFER, type="m5.24xlarge")))
    assert isinstance(other, Refused)
    assert other.cause is RefusalCause.INVALID
    assert first.id in other.why
    assert "m5.large" in other.why
    ec2.hidden.add(first.id)
    unlisted = await open_provider(setup=["echo other"]).create(an_order())
    assert isinstance(unlisted, Unknown), "a machine that is not listed yet counts as refused"
    assert len(ec2.machines) == 1


async def test_the_token_of_a_machine_that_ended_makes_no_other(ec2: Ec2Server, open_provider: Open) -> None:
    provider = open_provider()
    first = await made(provider, an_order())
    assert await provider.destroy([first.id]) == {}
    assert await provider.create(an_order()) == first
    ec2.hidden.add(first.id)  # after an hour EC2 does not list it any more
    answer = await provider.create(an_order())
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.LOST
    assert not ec2.machines


async def test_a_question_about_the_image_that_fails_orders_nothing(
    ec2: Ec2Server, open_provider: Open
) -> None:
    provider = open_provider(disk="40Gi")
    ec2.fail("DescribeImages", "InternalError", 500)
    assert isinstance(await provider.create(an_order()), NotNow)
    ec2.mend()
    ec2.fail("DescribeImages", "UnauthorizedOperation", 403)
    answer = await provider.create(an_order())
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.AUTH
    ec2.mend()
    await made(provider, an_order())
    await made(provider, an_order(2))
    assert ec2.count("DescribeImages") == 3, "the root device was asked for again"


async def test_a_script_that_is_too_long_is_refused_before_it_is_sent(
    ec2: Ec2Server, open_provider: Open
) -> None:
    answer = await open_provider(setup=["x" * 17_000]).create(an_order())
    assert isinstance(answer, Refused)
    assert answer.cause is RefusalCause.INVALID
    assert "shorten `setup`" in answer.why
    assert not ec2.calls


# --- listing


async def test_a_listing_of_many_pages_is_whole(ec2: Ec2Server, open_provider: Open) -> None:
    provider = open_provider()
    ids = {(await made(provider, an_order(number))).id for number in range(7)}
    ec2.page = 3
    listing = await provider.list()
    assert listing.whole
    assert {each.id for each in listing.machines} == ids
    assert sum("NextToken" in asked for _, asked in ec2.calls) >= 4


async def test_a_listing_that_breaks_off_has_its_first_pages_and_says_so(
    ec2: Ec2Server, open_provider: Open
) -> None:
    provider = open_provider()
    for number in range(5):
        await made(provider, an_order(number))
    ec2.page = 3
    ec2.fail("DescribeInstances", "RequestLimitExceeded", 503, when=lambda asked: "NextToken" in asked)
    listing = await provider.list()
    assert not listing.whole
    assert len(listing.machines) == 3
    assert listing.why == "RequestLimitExceeded: the wrapper says so"


async def test_a_listing_whose_first_page_fails_is_none(ec2: Ec2Server, open_provider: Open) -> None:
    ec2.fail("DescribeInstances", "UnauthorizedOperation", 403)
    with pytest.raises(ProviderError, match="UnauthorizedOperation"):
        await open_provider().list()
    assert ec2.count("DescribeInstances") == 1


async def test_a_machine_that_lost_even_its_name_is_found_by_its_token(
    ec2: Ec2Server, open_provider: Open
) -> None:
    provider, order = open_provider(), an_order()
    id_ = (await made(provider, order)).id
    ec2.lose_tags()
    (listed,) = (await provider.list()).machines
    assert (listed.id, listed.machine, listed.owner, listed.name) == (id_, "", "", order.name)


async def test_a_machine_of_an_owner_whose_names_begin_alike_is_not_ours(
    ec2: Ec2Server, open_provider: Open
) -> None:
    alike = OWNER[:8] + OTHER[8:]
    theirs = an_order(9, owner=alike)
    await made(open_provider(alike), theirs)
    assert theirs.name.startswith("spill-" + OWNER[:8])
    assert (await open_provider().list()).machines == ()


async def test_a_machine_that_is_made_and_not_listed_yet_is_still_the_same(
    ec2: Ec2Server, open_provider: Open
) -> None:
    provider = open_provider()
    first = await made(provider, an_order())
    ec2.hidden.add(first.id)
    assert (await provider.list()).machines == ()
    assert await made(provider, an_order()) == first


async def test_a_listing_tells_what_became_of_machines(ec2: Ec2Server, open_provider: Open) -> None:
    provider = open_provider()
    for number, state in enumerate(("pending", "running", "shutting-down", "stopped", "terminated")):
        id_ = (await made(provider, an_order(number))).id
        (machine,) = [each for each in ec2.machines if each.id == id_]
        machine._state.name = state
    listed = {each.machine: each for each in (await provider.list()).machines}
    assert [listed[f"cloud-{number}"].presence for number in range(5)] == [
        Presence.PENDING,
        Presence.RUNNING,
        Presence.STOPPING,
        Presence.STOPPING,
        Presence.GONE,
    ]
    assert not any(each.interrupted for each in listed.values())


async def test_a_spot_machine_that_was_taken_back_says_why(ec2: Ec2Server, open_provider: Open) -> None:
    provider = open_provider()
    await made(provider, an_order(offer=SPOT))
    ec2.take_back()
    (listed,) = (await provider.list()).machines
    assert (listed.presence, listed.interrupted) == (Presence.GONE, True)
    assert listed.reason == "Server.SpotInstanceTermination: Spot instance termination"


# --- destroying


async def test_machines_are_destroyed_together_although_some_are_unknown_or_protected(
    ec2: Ec2Server, open_provider: Open
) -> None:
    provider = open_provider()
    ids = [(await made(provider, an_order(number))).id for number in range(6)]
    ec2.machines[4].disable_api_termination = True
    asked = ["i-0123456789abcdef0", *ids, "rubbish"]
    left = await provider.destroy(asked)
    assert [*left] == [ids[4]]
    assert left[ids[4]].startswith("OperationNotPermitted: ")
    assert [each.id for each in ec2.machines] == [ids[4]]


async def test_many_machines_are_destroyed_by_few_requests(ec2: Ec2Server, open_provider: Open) -> None:
    ids = [f"i-{number:017x}" for number in range(2 * BATCH + 1)]
    ec2.accept("TerminateInstances")
    assert await open_provider().destroy(ids) == {}
    assert ec2.count("TerminateInstances") == 3


async def test_nothing_is_destroyed_while_there_are_too_many_requests(
    ec2: Ec2Server, open_provider: Open
) -> None:
    ec2.fail("TerminateInstances", "RequestLimitExceeded", 503)
    ids = [f"i-{number:017x}" for number in range(2 * BATCH + 1)]
    left = await open_provider().destroy(ids)
    assert set(left) == set(ids)
    assert ec2.count("TerminateInstances") == 1, "each batch was tried although EC2 asks for fewer requests"


async def test_destroying_nothing_asks_nobody(ec2: Ec2Server, open_provider: Open) -> None:
    assert await open_provider().destroy([]) == {}
    assert not ec2.calls


# --- prices, and closing


async def test_spot_prices_are_the_newest_of_each_zone(ec2: Ec2Server, open_provider: Open) -> None:
    offers = [SPOT, structs.replace(SPOT, zone=""), OFFER, structs.replace(SPOT, type="m5.enormous")]
    prices = await open_provider().prices(offers)
    assert [(each.type, each.zone, each.spot) for each in prices] == [
        ("m5.large", ZONES[0], True),
        ("m5.large", "", True),
    ]
    assert {each.hour for each in prices} == {10}  # what moto states: 0.00001
    assert await open_provider().prices([OFFER]) == ()
    ec2.fail("DescribeSpotPriceHistory", "UnauthorizedOperation", 403)
    with pytest.raises(ProviderError, match="UnauthorizedOperation"):
        await open_provider().prices(offers)


async def test_a_closed_provider_sends_nothing(ec2: Ec2Server, open_provider: Open) -> None:
    provider = open_provider()
    await provider.close()
    assert await provider.create(an_order()) == NotNow("the provider is closed")
    assert not ec2.calls


async def test_two_servers_with_one_token_make_one_machine(ec2: Ec2Server, open_provider: Open) -> None:
    """A deposed leader sends its order late, while the new one sends the same."""
    answers = await asyncio.gather(*[open_provider().create(an_order()) for _ in range(4)])
    assert len({each.id for each in answers if isinstance(each, Made)}) == 1
    assert len(ec2.machines) == 1
