"""The provider gce against a fake of its API behind a real HTTP server."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from spillover.model.pools import Offer, RefusalCause
from spillover.model.resources import Resources
from spillover.ports.provider import (
    MACHINE_TAG,
    OWNER_TAG,
    Made,
    NotNow,
    Order,
    Presence,
    ProviderError,
    Refused,
    Unknown,
)
from spillover.providers.gce.kind import GceForm, GceKind
from spillover.providers.gce.orders import escaped, unescaped
from spillover.providers.gce.provider import Gce
from spillover.testing.provider_suite import OWNER, Fault, OpenProvider, ProviderSuite, an_opening
from tests.support.clouds.gce import PROJECT, FakeGce, error
from tests.support.clouds.server import Reply, Request

ZONE = "us-east1-b"
SMALL = Offer("e2-small", Resources(2000, 2 * 2**30), 17_000, ZONE)


@pytest.fixture
def cloud() -> Iterator[FakeGce]:
    with FakeGce().served() as fake:
        yield fake


def opened(
    cloud: FakeGce,
    folder: Path,
    owner: str = OWNER,
    patience: float = 5,
    wait: float = 5,
    environ: dict[str, str] | None = None,
    **options: Any,
) -> Gce:
    options = {"credentials": str(cloud.key_file(folder))} | options
    form = GceForm(endpoint=f"{cloud.url}/compute/v1", **options)
    return Gce(
        form, replace(an_opening(folder, owner, environ or {}), home=folder), patience, wait, poll=0.001
    )


class TestContract(ProviderSuite):
    faults = frozenset(Fault)
    offer = SMALL
    bad_offer = Offer("e2-huge", Resources(2000), 1, ZONE)
    patience = 3
    cloud: FakeGce

    @pytest.fixture
    def open_provider(self, cloud: FakeGce, tmp_path: Path) -> OpenProvider:
        self.cloud = cloud
        return lambda owner: opened(cloud, tmp_path, owner)

    def provoke(self, fault: Fault) -> None:
        cloud = self.cloud
        refusals = {
            Fault.INVALID: error(400, "invalid", "Invalid value for field 'resource.disks[0]'"),
            Fault.AUTH: error(403, "forbidden", "Required 'compute.instances.create' permission"),
            Fault.THROTTLED: error(403, "rateLimitExceeded", "Rate Limit Exceeded"),
        }
        match fault:
            case Fault.CAPACITY:
                cloud.failing.append("ZONE_RESOURCE_POOL_EXHAUSTED")
            case Fault.QUOTA:
                cloud.failing.append("QUOTA_EXCEEDED")
            case Fault.UNREACHABLE:
                cloud.shut()
            case Fault.LOST_ANSWER:
                cloud.lost.append(("POST /compute", "work"))
            case Fault.LOST_REQUEST:
                cloud.lost.append(("POST /compute", "drop"))
            case Fault.PARTIAL:
                cloud.unreachable_zones = {"us-east1-c"}
            case Fault.LOST_TAGS:
                for each in cloud.instances.values():
                    each["labels"] = {}
            case Fault.TAKEN_BACK:
                cloud.instances.clear()
            case Fault.REFUSED_DESTROY:
                kept = error(400, "invalid", "Resource cannot be deleted if it's protected against deletion")
                cloud.before.append(lambda request: kept if request.method == "DELETE" else None)
            case _:
                cloud.before.append(lambda request: refusals[fault] if _orders(request) else None)

    def mend(self) -> None:
        self.cloud.failing.clear()
        self.cloud.unreachable_zones.clear()
        self.cloud.mend()


def _orders(request: Request) -> bool:
    return request.method == "POST" and request.path.endswith("/instances")


def an_order(**more: Any) -> Order:
    order = TestContract().an_order()
    return replace(order, **more) if more else order


@asynccontextmanager
async def renting(cloud: FakeGce, folder: Path, **options: Any) -> AsyncIterator[Gce]:
    provider = opened(cloud, folder, **options)
    try:
        yield provider
    finally:
        await provider.close()


def _means(answer: object) -> object:
    return answer.cause if isinstance(answer, Refused) else type(answer)


# --- refusals


@pytest.mark.parametrize(
    ("reply", "means"),
    [
        (error(403, "quotaExceeded", "Quota 'CPUS' exceeded"), RefusalCause.QUOTA),
        (error(401, "authError", "Invalid Credentials"), RefusalCause.AUTH),
        (error(403, "accessNotConfigured", "the API is not enabled"), RefusalCause.AUTH),
        (error(403, "something new", "no"), RefusalCause.AUTH),
        (error(400, "invalid", "bad field"), RefusalCause.INVALID),
        (error(404, "notFound", "no such network"), RefusalCause.INVALID),
        (error(412, "conditionNotMet", "a policy forbids it"), RefusalCause.INVALID),
        (error(403, "rateLimitExceeded", "slow down"), NotNow),
        (error(429, "userRateLimitExceeded", "slow down"), NotNow),
        (Reply(429, b"", {"Retry-After": "9"}), NotNow),
        (error(503, "backendError", "oops"), Unknown),
        (error(500, "internalError", "oops"), Unknown),
        (Reply(502, b"<html>"), Unknown),
        (Reply(403, b"<html>a proxy</html>"), Unknown),
        (Reply(200, b"not json"), Unknown),
    ],
)
async def test_each_refused_request_means_what_the_server_does_next(
    cloud: FakeGce, tmp_path: Path, reply: Reply, means: object
) -> None:
    async with renting(cloud, tmp_path) as provider:
        cloud.before.append(lambda request: reply if _orders(request) else None)
        answer = await provider.create(an_order())
        assert _means(answer) == means
        if isinstance(answer, NotNow):
            assert answer.after == float(reply.headers.get("Retry-After", 0))


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        ("ZONE_RESOURCE_POOL_EXHAUSTED", RefusalCause.CAPACITY),
        ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", RefusalCause.CAPACITY),
        ("QUOTA_EXCEEDED", RefusalCause.QUOTA),
        ("PERMISSIONS_ERROR", RefusalCause.AUTH),
        ("RESOURCE_NOT_FOUND", RefusalCause.INVALID),
        ("CONDITION_NOT_MET", RefusalCause.INVALID),
        ("INTERNAL_ERROR", RefusalCause.CAPACITY),
    ],
)
async def test_an_operation_that_fails_late_is_a_refusal_also_when_it_is_repeated(
    cloud: FakeGce, tmp_path: Path, code: str, cause: RefusalCause
) -> None:
    cloud.polls = 3
    cloud.failing.append(code)
    async with renting(cloud, tmp_path) as provider:
        answer = await provider.create(an_order())
        assert answer == Refused(cause, f"Google Cloud: it is {code.lower()} ({code})")
        assert await provider.create(an_order()) == answer, "the same order became another operation"
        assert cloud.instances == {}


async def test_an_operation_that_takes_too_long_is_unknown_and_then_made(
    cloud: FakeGce, tmp_path: Path
) -> None:
    cloud.polls = 10**6
    async with renting(cloud, tmp_path, wait=0.02) as provider:
        assert isinstance(await provider.create(an_order()), Unknown)
        (operation,) = cloud.operations.values()
        operation["looks"] = 1
        assert isinstance(await provider.create(an_order()), Made)
        assert len(cloud.instances) == 1


async def test_an_operation_that_cannot_be_looked_at_for_a_while_is_waited_for(
    cloud: FakeGce, tmp_path: Path
) -> None:
    async with renting(cloud, tmp_path) as provider:
        left = [error(503, "backendError", "oops"), Reply(200, b"?"), None]

        def fails_twice(request: Request) -> Reply | None:
            return left.pop(0) if left and "/operations/" in request.path else None

        cloud.before.append(fails_twice)
        cloud.lost.append(("GET", "drop"))
        assert isinstance(await provider.create(an_order()), Made)


# --- what is ordered


async def test_an_on_demand_machine_is_ordered_as_configured(cloud: FakeGce, tmp_path: Path) -> None:
    options = {"tags": ["batch"], "service_account": "vm@lab", "setup": ["echo hello"], "public_ip": False}
    async with renting(cloud, tmp_path, **options, subnetwork="regions/us-east1/subnetworks/b") as provider:
        order = an_order()
        made = await provider.create(order)
        assert isinstance(made, Made)
        assert made.id == f"{ZONE}/{order.name}"
        (machine,) = cloud.instances.values()
        assert machine["labels"] == order.tags
        (script,) = machine["metadata"]["items"]
        assert script["key"] == "startup-script"
        assert order.join.token in script["value"]
        assert "echo hello" in script["value"]
        assert machine["scheduling"] == {
            "provisioningModel": "STANDARD",
            "automaticRestart": False,
            "onHostMaintenance": "MIGRATE",
        }
        assert machine["disks"][0]["autoDelete"]
        assert machine["networkInterfaces"] == [{"subnetwork": "regions/us-east1/subnetworks/b"}]
        assert machine["tags"] == {"items": ["batch"]}
        assert machine["serviceAccounts"][0]["email"] == "vm@lab"


async def test_a_spot_machine_is_deleted_when_it_is_taken_back(cloud: FakeGce, tmp_path: Path) -> None:
    gpus = Offer("n1-standard-8", Resources(8000, 0, 2), 1, ZONE, spot=True)
    async with renting(cloud, tmp_path, accelerator="nvidia-tesla-t4") as provider:
        assert isinstance(await provider.create(an_order(offer=gpus)), Made)
        (machine,) = cloud.instances.values()
        assert machine["scheduling"] == {
            "provisioningModel": "SPOT",
            "automaticRestart": False,
            "onHostMaintenance": "TERMINATE",
            "instanceTerminationAction": "DELETE",
        }
        assert machine["guestAccelerators"] == [
            {"acceleratorType": f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 2}
        ]
        (interface,) = machine["networkInterfaces"]
        assert interface["network"] == "global/networks/default"
        assert interface["accessConfigs"]


@pytest.mark.parametrize("machine", ["Cloud.eu_west-3", "C" * 40 + "-1"])
async def test_a_cluster_with_an_unusual_name_gets_machines_too(
    cloud: FakeGce, tmp_path: Path, machine: str
) -> None:
    async with renting(cloud, tmp_path) as provider:
        order = an_order(machine=machine)
        assert isinstance(await provider.create(order), Made)
        (listed,) = (await provider.list()).machines
        assert listed.machine == (machine if len(machine) < 20 else ""), "too long for a label"
        assert (listed.owner, listed.name) == (OWNER, order.name)


@given(st.text())
def test_a_label_holds_every_id(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert unescaped(escaped(text)) == text
    assert all(each in "abcdefghijklmnopqrstuvwxyz0123456789-_" for each in escaped(text))


# --- names that are taken, an hour after the first order


async def test_a_repeated_order_whose_request_id_is_forgotten_adopts_by_name(
    cloud: FakeGce, tmp_path: Path
) -> None:
    async with renting(cloud, tmp_path) as provider:
        made = await provider.create(an_order())
        cloud.requests.clear()
        answer = await provider.create(an_order())
        assert isinstance(made, Made)
        assert isinstance(answer, Made)
        assert made.id == answer.id
        for each in cloud.instances.values():
            each["labels"] = {}
        assert await provider.create(an_order()) == answer


async def test_a_name_that_is_taken_late_is_adopted_too(cloud: FakeGce, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        await provider.create(an_order())
        (theirs,) = cloud.instances.values()
        cloud.requests.clear()
        cloud.instances.clear()
        cloud.failing.append("RESOURCE_ALREADY_EXISTS")

        def there_again(request: Request) -> None:
            if request.method == "GET" and "/instances/" in request.path:
                cloud.instances[ZONE, theirs["name"]] = theirs

        cloud.before.append(there_again)
        assert isinstance(await provider.create(an_order()), Made)


@pytest.mark.parametrize("labels", [{OWNER_TAG: "somebody"}, {OWNER_TAG: OWNER, MACHINE_TAG: "cloud-2"}])
async def test_an_instance_of_somebody_else_with_our_name_is_not_adopted(
    cloud: FakeGce, tmp_path: Path, labels: dict[str, str]
) -> None:
    async with renting(cloud, tmp_path) as provider:
        await provider.create(an_order())
        cloud.requests.clear()
        cloud.instances[ZONE, an_order().name]["labels"] = labels
        answer = await provider.create(an_order())
        assert _means(answer) is RefusalCause.INVALID
        assert isinstance(answer, Refused)
        assert an_order().name in answer.why


@pytest.mark.parametrize(
    "look", [error(503, "backendError", "oops"), error(403, "rateLimitExceeded", "slow down"), None]
)
async def test_a_taken_name_that_cannot_be_looked_up_stays_unknown(
    cloud: FakeGce, tmp_path: Path, look: Reply | None
) -> None:
    async with renting(cloud, tmp_path) as provider:
        taken = error(409, "alreadyExists", "already exists")
        cloud.before.append(
            lambda request: taken if _orders(request) else look if request.method == "GET" else None
        )
        assert isinstance(await provider.create(an_order()), Unknown)


async def test_a_refusal_does_not_hide_the_machine_of_an_earlier_order(
    cloud: FakeGce, tmp_path: Path
) -> None:
    async with renting(cloud, tmp_path) as provider:
        cloud.lost.append(("GET", "drop"))
        await provider.create(an_order())
        full = error(403, "quotaExceeded", "Quota 'CPUS' exceeded")
        cloud.before.append(lambda request: full if _orders(request) else None)
        assert isinstance(await provider.create(an_order()), Made)


# --- listings and destroying


async def test_all_pages_and_zones_are_listed(cloud: FakeGce, tmp_path: Path) -> None:
    cloud.page = 2
    async with renting(cloud, tmp_path) as provider:
        for number in range(5):
            offer = replace(SMALL, zone=cloud.zones[number % 3])
            await provider.create(replace(TestContract().an_order(number), offer=offer))
        listing = await provider.list()
        assert listing.whole
        assert sorted(each.machine for each in listing.machines) == [f"cloud-{each}" for each in range(5)]
        cloud.broken_page = 2
        listing = await provider.list()
        assert (listing.whole, len(listing.machines)) == (False, 2)
        assert "Backend Error" in listing.why


@pytest.mark.parametrize(
    "more",
    [
        {"unreachables": ["projects/lab-42/zones/us-east1-c"]},
        {"warning": {"code": "UNREACHABLE", "message": "us-east1-c"}},
    ],
)
async def test_a_listing_that_lacks_a_zone_is_not_whole(
    cloud: FakeGce, tmp_path: Path, more: dict[str, Any]
) -> None:
    async with renting(cloud, tmp_path) as provider:
        await provider.list()
        cloud.before.append(lambda request: Reply(200, {"items": {}, **more}))
        listing = await provider.list()
        assert not listing.whole
        assert "us-east1-c" in listing.why


@pytest.mark.parametrize(
    ("status", "presence"),
    [
        ("PROVISIONING", Presence.PENDING),
        ("STAGING", Presence.PENDING),
        ("RUNNING", Presence.RUNNING),
        ("REPAIRING", Presence.RUNNING),
        ("STOPPING", Presence.STOPPING),
        ("SUSPENDED", Presence.STOPPING),
        ("TERMINATED", Presence.STOPPING),
    ],
)
async def test_the_status_of_an_instance_says_whether_it_is_there(
    cloud: FakeGce, tmp_path: Path, status: str, presence: Presence
) -> None:
    async with renting(cloud, tmp_path) as provider:
        await provider.create(an_order())
        cloud.instances[ZONE, an_order().name]["status"] = status
        (listed,) = (await provider.list()).machines
        assert listed.presence is presence
        assert bool(listed.reason) == (presence is Presence.STOPPING)


async def test_only_machines_by_zone_and_name_are_deleted(cloud: FakeGce, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        bad = ["no-zone", f"{ZONE}/../x", f"{ZONE}/a/b", ""]
        assert await provider.destroy(bad) == dict.fromkeys(bad, "is not ZONE/NAME of an instance")
        assert not [each for each in cloud.asked if each.method == "DELETE"]


async def test_a_machine_that_is_being_deleted_counts_as_destroyed(cloud: FakeGce, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        made = await provider.create(an_order())
        assert isinstance(made, Made)
        assert await provider.destroy([made.id]) == {}
        assert await provider.destroy([made.id]) == {}
        cloud.instances[ZONE, an_order().name]["status"] = "RUNNING"
        busy = error(400, "resourceNotReady", "is not ready")
        cloud.before.append(lambda request: busy if request.method == "DELETE" else None)
        assert [*await provider.destroy([made.id])] == [made.id], "it is not being deleted"


# --- offers and options


@pytest.mark.parametrize(
    ("offer", "words"),
    [
        (replace(SMALL, zone="moon-1a"), "no zone 'moon-1a'"),
        (replace(SMALL, type="e2-huge"), f"no machine type 'e2-huge' in {ZONE}"),
        (replace(SMALL, resources=Resources(4000)), "states 4 CPUs, and the type has 2"),
        (replace(SMALL, resources=Resources(1, 4 * 2**30)), "states 4Gi of memory, and the type has 2Gi"),
        (
            Offer("n1-standard-8", Resources(1, 1, 1), 1, ZONE),
            "states 1 GPUs, and the type has 0; `accelerator`",
        ),
        (Offer("a2-highgpu-1g", Resources(1, 1, 2), 1, ZONE), "states 2 GPUs, and the type has 1"),
    ],
)
async def test_an_offer_that_cannot_be_rented_says_what_there_is(
    cloud: FakeGce, tmp_path: Path, offer: Offer, words: str
) -> None:
    async with renting(cloud, tmp_path) as provider:
        (line,) = await provider.check([SMALL, Offer("a2-highgpu-1g", Resources(1, 1, 1), 1, ZONE), offer])
        assert words in line


async def test_an_image_that_is_not_there_is_told(cloud: FakeGce, tmp_path: Path) -> None:
    async with renting(
        cloud, tmp_path, image="projects/debian-cloud/global/images/family/debian-1"
    ) as provider:
        (line,) = await provider.check([SMALL])
        assert "no image 'projects/debian-cloud/global/images/family/debian-1'" in line
    url = "https://www.googleapis.com/compute/v1/projects/debian-cloud/global/images/family/debian-13"
    async with renting(cloud, tmp_path, image=url) as provider:
        assert list(await provider.check([SMALL])) == []
    cloud.images.append(f"projects/{PROJECT}/global/images/ours")
    async with renting(cloud, tmp_path, image="global/images/ours") as provider:
        assert list(await provider.check([SMALL])) == []


async def test_a_check_that_cannot_ask_says_so_in_one_line(cloud: FakeGce, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        cloud.before.append(
            lambda request: error(403, "forbidden", "no") if request.method == "GET" else None
        )
        assert list(await provider.check([SMALL])) == [
            "Google Cloud cannot be asked: Google Cloud: no (forbidden)"
        ]


def test_options_that_cannot_work_are_told() -> None:
    form = GceForm(setup=["x" * 13_000], endpoint="compute.googleapis.com")
    offers = [SMALL, replace(SMALL, zone=""), replace(SMALL, zone="a/b")]
    paths = [flaw.path for flaw in GceKind().check(form, offers)]
    assert paths == [("offers", 1, "zones"), ("offers", 2, "zones"), ("setup",), ("endpoint",)]


# --- credentials


async def test_a_token_is_used_until_it_expires_or_is_refused(cloud: FakeGce, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        await provider.list()
        await provider.list()
        assert cloud.granted == 1
        cloud.valid.clear()
        assert (await provider.list()).whole, "a token that was revoked is replaced"
        assert cloud.granted == 2


async def test_credentials_that_google_refuses_refuse_the_order(cloud: FakeGce, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        cloud.deny = "account not found"
        answer = await provider.create(an_order())
        assert answer == Refused(
            RefusalCause.AUTH, "Google refuses an access token: invalid_grant: account not found"
        )
        with pytest.raises(ProviderError, match="account not found"):
            await provider.list()
        with pytest.raises(ProviderError, match="account not found"):
            await provider.destroy([f"{ZONE}/x"])
        (line,) = await provider.check([SMALL])
        assert "account not found" in line


async def test_a_token_that_cannot_be_had_for_now_is_not_a_refusal(cloud: FakeGce, tmp_path: Path) -> None:
    async with renting(cloud, tmp_path) as provider:
        cloud.before.append(lambda request: Reply(503) if request.path == "/token" else None)
        assert isinstance(await provider.create(an_order()), NotNow)


async def test_the_login_of_a_person_and_the_metadata_service_give_tokens_too(
    cloud: FakeGce, tmp_path: Path
) -> None:
    login = tmp_path / ".config/gcloud/application_default_credentials.json"
    login.parent.mkdir(parents=True)
    key = cloud.key_file(
        tmp_path, type="authorized_user", client_id="a-person", client_secret="x", refresh_token="refresh"
    )
    key.rename(login)
    async with renting(cloud, tmp_path, credentials="", project=PROJECT) as provider:
        assert (await provider.list()).whole
    login.unlink()
    environ = {"GCE_METADATA_HOST": cloud.url.removeprefix("http://"), "GOOGLE_CLOUD_PROJECT": PROJECT}
    async with renting(cloud, tmp_path, credentials="", environ=environ) as provider:
        assert (await provider.list()).whole
    assert cloud.granted == 2


async def test_gcloud_prints_tokens(cloud: FakeGce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gcloud = tmp_path / "gcloud"
    gcloud.write_text("#!/bin/sh\necho ya29.printed\n")
    gcloud.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    cloud.valid.add("ya29.printed")
    async with renting(cloud, tmp_path, credentials="gcloud", project=PROJECT) as provider:
        assert (await provider.list()).whole
    gcloud.write_text("#!/bin/sh\necho 'You are not logged in.\nRun gcloud auth login' >&2; exit 1\n")
    async with renting(cloud, tmp_path, credentials="gcloud", project=PROJECT) as provider:
        answer = await provider.create(an_order())
        assert answer == Refused(RefusalCause.AUTH, "gcloud printed no token: You are not logged in.")


class TestMissing:
    def missing(self, home: Path, environ: dict[str, str] | None = None, **options: Any) -> str:
        return " ".join(GceKind().missing(GceForm(**options), environ or {}, home))

    def test_without_credentials_it_says_where_they_are_looked_for(self, tmp_path: Path) -> None:
        line = self.missing(tmp_path)
        assert "GOOGLE_APPLICATION_CREDENTIALS" in line
        assert str(tmp_path / ".config/gcloud/application_default_credentials.json") in line

    def test_a_file_that_is_no_key_is_named(self, tmp_path: Path) -> None:
        path = tmp_path / "key.json"
        assert f"cannot read the credentials of Google Cloud from {path}" in self.missing(
            tmp_path, {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}
        )
        path.write_text("{")
        assert f"{path} has no credentials" in self.missing(tmp_path, credentials="~/key.json")
        path.write_text('{"type": "external_account"}')
        assert "of type 'external_account'" in self.missing(tmp_path, credentials=str(path))

    def test_the_project_must_be_known(self, tmp_path: Path) -> None:
        path = tmp_path / "key.json"
        path.write_text('{"type": "service_account"}')
        assert "set `project`" in self.missing(tmp_path, credentials=str(path))
        assert self.missing(tmp_path, {"GOOGLE_CLOUD_PROJECT": PROJECT}, credentials=str(path)) == ""
        path.write_text('{"type": "service_account", "project_id": "lab"}')
        assert self.missing(tmp_path, credentials=str(path)) == ""

    async def test_a_key_file_without_a_key_refuses_the_order(self, cloud: FakeGce, tmp_path: Path) -> None:
        key = cloud.key_file(tmp_path, private_key="-----BEGIN PRIVATE KEY-----")
        provider = Gce(
            GceForm(credentials=str(key), endpoint=f"{cloud.url}/compute/v1"), an_opening(tmp_path, OWNER, {})
        )
        answer = await provider.create(an_order())
        assert _means(answer) is RefusalCause.AUTH
        assert isinstance(answer, Refused)
        assert str(key) in answer.why
        await provider.close()
