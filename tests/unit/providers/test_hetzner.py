"""The provider hetzner against a fake of its API behind a real HTTP server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from spillover.model.pools import Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.ports.provider import (
    MACHINE_TAG,
    OWNER_TAG,
    Created,
    Made,
    NotNow,
    Order,
    Presence,
    ProviderError,
    Refused,
    Unknown,
)
from spillover.providers.hetzner.kind import HetznerForm, HetznerKind
from spillover.providers.hetzner.provider import Hetzner
from spillover.testing.provider_suite import OWNER, Fault, OpenProvider, ProviderSuite, an_opening
from tests.support.clouds.hetzner import TOKEN, FakeHetzner, a_type, error
from tests.support.clouds.server import Reply, Request

ENVIRON = {"HCLOUD_TOKEN": TOKEN}
SMALL = Offer("cx22", Resources(2000, 4 * 2**30), 6000, "nbg1")


@pytest.fixture
def cloud() -> Iterator[FakeHetzner]:
    with FakeHetzner().served() as fake:
        yield fake


def opened(
    cloud: FakeHetzner, folder: Path, owner: str = OWNER, patience: float = 5, **options: Any
) -> Hetzner:
    form = HetznerForm(endpoint=f"{cloud.url}/v1", **options)
    return Hetzner(form, an_opening(folder, owner, ENVIRON), patience)


class TestContract(ProviderSuite):
    faults = frozenset(Fault) - {Fault.TAKEN_BACK}
    offer = SMALL
    bad_offer = Offer("cx99", Resources(2000), 1)
    remembers = False  # a name is free again once its server is gone
    patience = 3
    cloud: FakeHetzner

    @pytest.fixture
    def open_provider(self, cloud: FakeHetzner, tmp_path: Path) -> OpenProvider:
        self.cloud = cloud
        return lambda owner: opened(cloud, tmp_path, owner)

    def provoke(self, fault: Fault) -> None:
        cloud = self.cloud
        refusals = {
            Fault.CAPACITY: error(412, "resource_unavailable", "error during placement"),
            Fault.QUOTA: error(403, "resource_limit_exceeded", "server limit exceeded"),
            Fault.INVALID: error(422, "invalid_input", "invalid input in field 'image'", "image"),
            Fault.AUTH: error(401, "unauthorized", "unable to authenticate"),
            Fault.THROTTLED: error(429, "rate_limit_exceeded", "limit of 3600 requests per hour reached"),
        }
        match fault:
            case Fault.UNREACHABLE:
                cloud.shut()
            case Fault.LOST_ANSWER:
                cloud.lost.append(("POST", "work"))
            case Fault.LOST_REQUEST:
                cloud.lost.append(("POST", "drop"))
            case Fault.PARTIAL:
                cloud.page, cloud.broken_page = 1, 2
                for name in ("theirs-1", "theirs-2"):
                    a_server(cloud, name)
            case Fault.LOST_TAGS:
                for each in cloud.servers.values():
                    each["labels"] = {}
            case Fault.REFUSED_DESTROY:
                locked = error(423, "locked", "server is locked by another action")
                cloud.before.append(lambda request: locked if request.method == "DELETE" else None)
            case _:
                cloud.before.append(lambda request: refusals[fault] if _refuses(request, fault) else None)

    def mend(self) -> None:
        self.cloud.page, self.cloud.broken_page = 50, 0
        self.cloud.mend()


def _refuses(request: Request, fault: Fault) -> bool:
    """Tokens and too many requests are about all requests, the others about orders."""
    return request.method == "POST" or fault in {Fault.AUTH, Fault.THROTTLED}


def a_server(cloud: FakeHetzner, name: str, labels: dict[str, str] | None = None, **more: Any) -> int:
    """Add a server that somebody made by hand."""
    body = {"name": name, "server_type": "cx22", "image": "debian-13", "labels": labels or {}}
    id_ = int(cloud._create(body).content.split(b'"id": ')[1].split(b",")[0])
    cloud.servers[id_] |= {"status": "running", **more}
    return id_


def an_order(**more: Any) -> Order:
    order = TestContract().an_order()
    return replace(order, **more) if more else order


@asynccontextmanager
async def renting(cloud: FakeHetzner, folder: Path, **options: Any) -> AsyncIterator[Hetzner]:
    provider = opened(cloud, folder, **options)
    try:
        yield provider
    finally:
        await provider.close()


@pytest.mark.parametrize(
    ("reply", "means"),
    [
        (error(409, "placement_error", "no room in the placement group"), RefusalCause.CAPACITY),
        (error(503, "resource_unavailable", "server location disabled"), RefusalCause.CAPACITY),
        (error(403, "resource_limit_exceeded", "vCPU limit"), RefusalCause.QUOTA),
        (error(403, "forbidden", "insufficient permissions"), RefusalCause.AUTH),
        (error(403, "token_readonly", "only GET"), RefusalCause.AUTH),
        (error(400, "json_error", "bad"), RefusalCause.INVALID),
        (error(404, "not_found", "no such network"), RefusalCause.INVALID),
        (error(422, "invalid_server_type", "deprecated"), RefusalCause.INVALID),
        (error(429, "rate_limit_exceeded", "slow down"), NotNow),
        (error(409, "conflict", "changed meanwhile"), NotNow),
        (error(503, "maintenance", "back soon"), NotNow),
        (error(500, "service_error", "oops"), Unknown),
        (error(504, "timeout", "too slow"), Unknown),
        (Reply(502, b"<html>bad gateway</html>"), Unknown),
        (Reply(403, b"<html>a proxy</html>"), Unknown),
        (Reply(429, b"", {"Retry-After": "7"}), NotNow),
        (Reply(201, b"not json"), Unknown),
        (Reply(201, b'{"server": {"id": null}}'), Unknown),
        (Reply(302, b"", {"Location": "/elsewhere"}), Unknown),
    ],
)
async def test_each_error_means_what_the_server_does_next(
    cloud: FakeHetzner, tmp_path: Path, reply: Reply, means: Any
) -> None:
    async with renting(cloud, tmp_path) as provider:
        cloud.before.append(lambda request: reply if request.method == "POST" else None)
        answer = await provider.create(an_order())
        assert (answer.cause if isinstance(answer, Refused) else type(answer)) == means
        if isinstance(answer, NotNow):
            assert answer.after == float(reply.headers.get("Retry-After", 0))


async def test_a_wrong_field_is_named_in_the_refusal(cloud: FakeHetzner, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path, image="debian-99") as provider:
        answer = await provider.create(an_order())
        assert answer == Refused(
            RefusalCause.INVALID,
            "Hetzner: invalid input in field 'image'; image: is not valid (invalid_input)",
        )


async def test_the_machine_gets_its_user_data_tags_and_options(cloud: FakeHetzner, tmp_path: Path) -> None:
    async with renting(
        cloud, tmp_path, ssh_keys=["ops"], networks=[5], firewalls=[6], ipv4=False, setup=["echo hello"]
    ) as provider:
        order = an_order()
        assert isinstance(await provider.create(order), Made)
        (server,) = cloud.servers.values()
        assert server["labels"] == order.tags
        assert server["name"] == order.name
        assert order.join.token in server["user_data"]
        assert "echo hello" in server["user_data"]
        asked = server["asked"]
        assert (asked["server_type"], asked["location"], asked["image"]) == ("cx22", "nbg1", "debian-13")
        assert (asked["ssh_keys"], asked["networks"], asked["firewalls"]) == (["ops"], [5], [{"firewall": 6}])
        assert asked["public_net"] == {"enable_ipv4": False, "enable_ipv6": True}


async def test_a_cluster_with_a_long_name_gets_machines_too(cloud: FakeHetzner, tmp_path: Path) -> None:
    """The id does not fit into a label, so the machine is known by its name."""
    async with renting(cloud, tmp_path) as provider:
        machine = "C" * 63 + "-1"
        order = an_order(machine=machine)
        made = await provider.create(order)
        assert isinstance(made, Made)
        assert await provider.create(order) == made
        (listed,) = (await provider.list()).machines
        assert (listed.machine, listed.owner, listed.name) == ("", OWNER, order.name)


# --- names that are taken


@pytest.mark.parametrize("labels", [{OWNER_TAG: "somebody"}, {OWNER_TAG: OWNER, MACHINE_TAG: "cloud-2"}])
async def test_a_server_of_somebody_else_with_our_name_is_not_adopted(
    cloud: FakeHetzner, tmp_path: Path, labels: dict[str, str]
) -> None:
    theirs = a_server(cloud, an_order().name, labels)
    async with renting(cloud, tmp_path) as provider:
        answer = await provider.create(an_order())
        assert isinstance(answer, Refused)
        assert answer.cause is RefusalCause.INVALID
        assert str(theirs) in answer.why


async def test_our_machine_is_adopted_although_its_labels_are_gone(
    cloud: FakeHetzner, tmp_path: Path
) -> None:
    async with renting(cloud, tmp_path) as provider:
        made = await provider.create(an_order())
        for each in cloud.servers.values():
            each["labels"] = {}
        assert await provider.create(an_order()) == made


async def test_a_taken_name_whose_server_is_not_listed_yet_stays_unknown(
    cloud: FakeHetzner, tmp_path: Path
) -> None:
    """A listing that lags must not turn into a refusal: the machine exists."""
    async with renting(cloud, tmp_path) as provider:
        cloud.lag = 1
        await provider.create(an_order())
        assert isinstance(await provider.create(an_order()), Unknown)
        assert isinstance(await provider.create(an_order()), Made)


async def test_a_taken_name_that_cannot_be_looked_up_stays_unknown(
    cloud: FakeHetzner, tmp_path: Path
) -> None:
    async with renting(cloud, tmp_path) as provider:
        await provider.create(an_order())
        slow = error(429, "rate_limit_exceeded", "slow down")
        cloud.before.append(lambda request: slow if request.method == "GET" else None)
        assert isinstance(await provider.create(an_order()), Unknown)


@pytest.mark.parametrize("code", ["resource_unavailable", "resource_limit_exceeded", "invalid_input"])
async def test_a_refusal_does_not_hide_the_machine_of_an_earlier_order(
    cloud: FakeHetzner, tmp_path: Path, code: str
) -> None:
    """Its answer was lost, and meanwhile there is no more capacity."""
    async with renting(cloud, tmp_path) as provider:
        cloud.lost.append(("POST", "work"))
        assert isinstance(await provider.create(an_order()), Unknown)
        cloud.before.append(lambda request: error(412, code, "no") if request.method == "POST" else None)
        assert isinstance(await provider.create(an_order()), Made)


async def test_an_answer_that_comes_too_late_is_unknown_and_the_repetition_adopts(
    cloud: FakeHetzner, tmp_path: Path
) -> None:
    async with renting(cloud, tmp_path, patience=0.05) as provider:
        cloud.late["POST"] = 0.3
        assert isinstance(await provider.create(an_order()), Unknown)
        cloud.late.clear()
        answer: Created = await provider.create(an_order())
        assert isinstance(answer, Made)
        assert [str(each) for each in cloud.servers] == [answer.id]


# --- listings


async def test_all_pages_are_listed_and_only_ours_are_kept(cloud: FakeHetzner, tmp_path: Path) -> None:
    cloud.page = 2
    async with renting(cloud, tmp_path) as provider:
        for number in range(5):
            a_server(cloud, f"theirs-{number}")
            await provider.create(TestContract().an_order(number))
        listing = await provider.list()
        assert listing.whole
        assert sorted(each.machine for each in listing.machines) == [f"cloud-{each}" for each in range(5)]


async def test_a_listing_during_which_servers_went_is_not_whole(cloud: FakeHetzner, tmp_path: Path) -> None:
    """Page 2 begins one later than page 1 ended, so one of ours is missing."""
    cloud.page = 1
    first = a_server(cloud, "theirs")
    async with renting(cloud, tmp_path) as provider:
        await provider.create(an_order())

        def delete_after_page_1(request: Any) -> None:
            if request.query.get("page") == "2":
                cloud.servers.pop(first, None)

        cloud.before.append(delete_after_page_1)
        listing = await provider.list()
        assert (listing.whole, listing.machines) == (False, ())
        assert listing.why


@pytest.mark.parametrize(
    ("status", "minutes", "presence"),
    [
        ("initializing", 0, Presence.PENDING),
        ("starting", 0, Presence.PENDING),
        ("off", 0, Presence.PENDING),
        ("running", 0, Presence.RUNNING),
        ("migrating", 60, Presence.RUNNING),
        ("unknown", 60, Presence.RUNNING),
        ("something new", 60, Presence.RUNNING),
        ("stopping", 60, Presence.STOPPING),
        ("off", 60, Presence.STOPPING),
        ("deleting", 60, Presence.STOPPING),
    ],
)
async def test_the_status_of_a_server_says_whether_it_is_there(
    cloud: FakeHetzner, tmp_path: Path, status: str, minutes: int, presence: Presence
) -> None:
    created = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
    a_server(cloud, an_order().name, an_order().tags, status=status, created=created)
    async with renting(cloud, tmp_path) as provider:
        (listed,) = (await provider.list()).machines
        assert listed.presence is presence
        assert bool(listed.reason) == (presence is Presence.STOPPING)


# --- destroying


async def test_one_machine_that_is_protected_does_not_keep_the_others(
    cloud: FakeHetzner, tmp_path: Path
) -> None:
    async with renting(cloud, tmp_path) as provider:
        ids = [
            answer.id
            for each in range(9)
            if isinstance(answer := await provider.create(TestContract().an_order(each)), Made)
        ]
        protected = error(403, "protected", "delete protection is on")
        cloud.before.append(lambda request: protected if request.path.endswith(ids[3]) else None)
        assert await provider.destroy([*ids, "not-an-id"]) == {
            ids[3]: "Hetzner: delete protection is on (protected)",
            "not-an-id": "is not the id of a server of Hetzner",
        }
        await provider.list()
        assert [str(each) for each in cloud.servers] == [ids[3]]


async def test_a_lost_answer_to_a_deletion_is_told_and_repeated(cloud: FakeHetzner, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        made = await provider.create(an_order())
        assert isinstance(made, Made)
        cloud.lost.append(("DELETE", "work"))
        assert [*await provider.destroy([made.id])] == [made.id]
        assert await provider.destroy([made.id]) == {}


# --- offers, prices and options


@pytest.mark.parametrize(
    ("offer", "line"),
    [
        (
            Offer("cx99", Resources(1), 1, "fsn1"),
            "Hetzner has no server type 'cx99'; it has cax11, ccx63, cx22",
        ),
        (Offer("cx22", Resources(1), 1, "moon"), "Hetzner has no location 'moon'; it has ash, fsn1, nbg1"),
        (Offer("cx22", Resources(1), 1, "ash"), "Hetzner does not sell cx22 in ash; it does in fsn1, nbg1"),
        (Offer("cx22", Resources(4000), 1), "the offer cx22//on-demand states 4 CPUs, and the type has 2"),
        (
            Offer("cx22", Resources(1, 8 * 2**30), 1),
            "the offer cx22//on-demand states 8Gi of memory, and the type has 4Gi",
        ),
        (
            Offer("cx22", Resources(1, 1, 1), 1),
            "the offer cx22//on-demand states GPUs, and Hetzner Cloud has none",
        ),
        (
            Offer("cax11", Resources(1), 1),
            "Hetzner has no image 'debian-13' for arm machines; `hcloud image list` shows those there are",
        ),
    ],
)
async def test_an_offer_that_cannot_be_rented_says_what_there_is(
    cloud: FakeHetzner, tmp_path: Path, offer: Offer, line: str
) -> None:
    async with renting(cloud, tmp_path) as provider:
        assert list(await provider.check([SMALL, offer])) == [line]


async def test_the_locations_of_a_type_count_where_the_api_lists_them(
    cloud: FakeHetzner, tmp_path: Path
) -> None:
    cloud.types[0]["locations"] = [{"id": 1, "name": "fsn1", "deprecation": None}]
    async with renting(cloud, tmp_path) as provider:
        assert list(await provider.check([SMALL])) == ["Hetzner does not sell cx22 in nbg1; it does in fsn1"]


async def test_an_image_may_be_named_by_its_id(cloud: FakeHetzner, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path, image="7") as provider:
        assert list(await provider.check([SMALL])) == []
    async with renting(cloud, tmp_path, image="8") as provider:
        assert len(list(await provider.check([SMALL]))) == 1


async def test_a_check_that_cannot_ask_says_so_in_one_line(cloud: FakeHetzner, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        cloud.before.append(lambda request: error(401, "unauthorized", "unable to authenticate"))
        assert list(await provider.check([SMALL])) == [
            "Hetzner cannot be asked: Hetzner: unable to authenticate (unauthorized)"
        ]


async def test_prices_are_net_and_by_location(cloud: FakeHetzner, tmp_path: Path) -> None:
    cloud.types.append(
        a_type("odd", 1, 1, ("fsn1",)) | {"prices": [{"location": "fsn1", "price_hourly": {"net": "?"}}]}
    )
    async with renting(cloud, tmp_path) as provider:
        offers = [
            SMALL,
            Offer("ccx63", Resources(1), 1),
            Offer("cx99", Resources(1), 1),
            Offer("odd", Resources(1), 1),
        ]
        seen = [(each.type, each.zone, each.hour) for each in await provider.prices(offers)]
        assert seen == [("cx22", "nbg1", 6000), *[("ccx63", zone, 6000) for zone in ("fsn1", "nbg1", "ash")]]
        cloud.shut()
        with pytest.raises(ProviderError):
            await provider.prices(offers)


class TestToken:
    kind = HetznerKind()

    def missing(self, home: Path, environ: dict[str, str] | None = None, **options: Any) -> list[str]:
        return list(self.kind.missing(HetznerForm(**options), environ or {}, home))

    def test_a_missing_token_says_where_it_is_looked_for(self, tmp_path: Path) -> None:
        (line,) = self.missing(tmp_path)
        assert "HCLOUD_TOKEN" in line
        assert "token_file" in line

    def test_a_file_is_read_from_the_home_folder(self, tmp_path: Path) -> None:
        (line,) = self.missing(tmp_path, token_file="~/token")
        assert str(tmp_path / "token") in line
        (tmp_path / "token").write_text("\n")
        assert "is empty" in self.missing(tmp_path, token_file="~/token")[0]
        (tmp_path / "token").write_text("ab\x00c")
        assert "cannot have" in self.missing(tmp_path, token_file="~/token")[0]
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        assert self.missing(tmp_path, token_file="~/token") == []

    async def test_an_order_without_a_token_is_refused_until_there_is_one(
        self, cloud: FakeHetzner, tmp_path: Path
    ) -> None:
        path = tmp_path / "token"
        async with renting(cloud, tmp_path, token_file=str(path)) as provider:
            answer = await provider.create(an_order())
            assert isinstance(answer, Refused)
            assert answer.cause is RefusalCause.AUTH
            with pytest.raises(ProviderError, match="cannot read the API token"):
                await provider.list()
            assert len(list(await provider.check([SMALL]))) == 1
            path.write_text(TOKEN)
            assert isinstance(await provider.create(an_order()), Made)

    def test_options_that_cannot_work_are_told(self) -> None:
        spot = replace(SMALL, spot=True)
        form = HetznerForm(ipv4=False, ipv6=False, setup=["x" * 13_000, "a\0b"], endpoint="api.hetzner.cloud")
        paths = [flaw.path for flaw in self.kind.check(form, [SMALL, spot])]
        assert paths == [("offers", 1, "spot"), ("ipv4",), ("setup",), ("setup", 1), ("endpoint",)]
        assert not list(self.kind.check(HetznerForm(), [SMALL]))
