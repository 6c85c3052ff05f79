"""Options of the provider aws: what is wrong with them, what this machine lacks, and what EC2 says to them."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from spillover.model.pools import Offer
from spillover.model.resources import Resources
from spillover.ports.kinds import CannotOpen
from spillover.ports.provider import Refused
from spillover.providers.aws.calls import ACTIONS
from spillover.providers.aws.kind import AwsKind
from spillover.providers.aws.options import AwsForm
from spillover.testing.provider_suite import ProviderSuite, an_opening
from tests.support.clouds.ec2 import KEYS, REGION, ZONES, Ec2Server

OFFER = Offer("m5.large", Resources(2000, 7 * 2**30), 115_000, ZONES[0])
GOOD = AwsForm(region=REGION, image="ami-1")


def flaws(form: AwsForm, *offers: Offer) -> list[str]:
    return [
        f"{'.'.join(map(str, path))}: {message}"
        for path, message in AwsKind().check(form, offers or (OFFER,))
    ]


def test_usual_options_have_no_flaws() -> None:
    assert flaws(GOOD) == []
    assert flaws(AwsForm(launch_template="nodes:3")) == []
    assert (
        flaws(structs.replace(GOOD, subnets={ZONES[0]: "subnet-1"}, disk="100Gi", tags={"team": "x"})) == []
    )


@pytest.mark.parametrize(
    ("options", "flaw"),
    [
        (
            {"image": None},
            "offers.0: there is no image for 'm5.large'; set `image`, `images` or `launch_template`",
        ),
        ({"region": "us-east-1"}, "offers.0: the zone 'eu-central-1a' is not in the region us-east-1"),
        (
            {"subnets": {ZONES[1]: "subnet-1"}},
            "offers.0: `subnets` has no subnet for the zone 'eu-central-1a'; it has those of eu-central-1b",
        ),
        (
            {"disk": "much"},
            "disk: 'much' is not an amount of memory; write 512Mi, 2Gi, 2G or a number of bytes",
        ),
        (
            {"disk": "10Gi", "image": None, "launch_template": "nodes"},
            "disk: needs an image (ami-...) for each type; else set the size in the launch template",
        ),
        (
            {"tags": {"spillover-owner": "me"}},
            "tags.spillover-owner: is a tag that Spillover or AWS sets; write another name",
        ),
        (
            {"setup": ["x" * 13_000]},
            "setup: has 13001 bytes, and clouds take 12288; download a script in it, or put it into the image",
        ),
        ({"endpoint": "ec2"}, "endpoint: 'ec2' is not a URL; write one such as https://api.example.com/v1"),
    ],
)
def test_a_contradiction_is_told_in_one_line(options: dict[str, Any], flaw: str) -> None:
    assert flaws(structs.replace(GOOD, **options)) == [flaw]


# --- credentials


def lacks(home: Path, environ: Mapping[str, str], form: AwsForm = GOOD) -> list[str]:
    return [*AwsKind().missing(form, environ, home)]


def write(home: Path, name: str, text: str) -> Path:
    path = home / ".aws" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def test_credentials_are_looked_for_where_aws_looks(tmp_path: Path) -> None:
    assert lacks(tmp_path, KEYS) == []
    (why,) = lacks(tmp_path, {})
    assert why == (
        "there are no credentials for AWS: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, "
        f"{tmp_path}/.aws/credentials and {tmp_path}/.aws/config have no profile, and this machine has no role; "
        "set one of these, or `profile`"
    )
    assert lacks(tmp_path, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}) == []
    write(tmp_path, "credentials", "[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
    assert lacks(tmp_path, {}) == []


def test_a_profile_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    write(tmp_path, "credentials", "[default]\naws_access_key_id = A\naws_secret_access_key = B\n")
    write(tmp_path, "config", "[profile batch]\nregion = x\n[sso-session s]\n")
    assert lacks(tmp_path, {}, structs.replace(GOOD, profile="batch")) == []
    (why,) = lacks(tmp_path, KEYS, structs.replace(GOOD, profile="bach"))
    assert why == (
        f"there is no profile 'bach' in {tmp_path}/.aws/credentials or {tmp_path}/.aws/config; there are batch, default"
    )
    assert lacks(tmp_path, {"AWS_PROFILE": "bach"})
    elsewhere = write(tmp_path, "other", "[bach]\n")
    assert lacks(tmp_path, {"AWS_PROFILE": "bach", "AWS_SHARED_CREDENTIALS_FILE": str(elsewhere)}) == []


def test_half_a_key_and_a_file_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    half = {"AWS_ACCESS_KEY_ID": "A"}
    assert lacks(tmp_path, half) == [
        "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not; set both, or none of them"
    ]
    path = write(tmp_path, "config", "no section")
    (why,) = lacks(tmp_path, {})
    assert why.startswith(f"{path} cannot be read: ")
    assert why.isprintable()


def test_a_provider_without_a_region_is_not_opened(tmp_path: Path) -> None:
    form = structs.replace(GOOD, region=None)
    assert lacks(tmp_path, KEYS | {"AWS_REGION": REGION}, form) == []
    with pytest.raises(CannotOpen, match="the provider aws has no region; set `region`, or AWS_REGION"):
        AwsKind().open(form, an_opening(tmp_path, environ=KEYS))


async def test_credentials_come_from_the_profile_that_is_named(ec2: Ec2Server, tmp_path: Path) -> None:
    write(tmp_path, "credentials", "[batch]\naws_access_key_id = AKIABATCH\naws_secret_access_key = B\n")
    form = structs.replace(GOOD, profile="batch", endpoint=ec2.url)
    provider = AwsKind().open(form, structs.replace(an_opening(tmp_path, environ=KEYS), home=tmp_path))
    await provider.list()
    await provider.close()
    assert ec2.keys == {"AKIABATCH"}


async def test_missing_credentials_refuse_an_order_and_say_where_they_are_looked_for(
    ec2: Ec2Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    path = tmp_path / ".aws" / "credentials"
    form = structs.replace(GOOD, endpoint=ec2.url)
    provider = AwsKind().open(form, structs.replace(an_opening(tmp_path, environ={}), home=tmp_path))
    answer = await provider.create(ProviderSuite().an_order(offer=OFFER))
    assert isinstance(answer, Refused)
    assert (answer.cause, f"{path} and" in answer.why) == ("auth", True)
    assert not ec2.calls


# --- what EC2 says


async def checked(ec2: Ec2Server, folder: Path, *offers: Offer, **options: Any) -> list[str]:
    form = AwsForm(**({"region": REGION, "endpoint": ec2.url} | options))
    provider = AwsKind().open(form, an_opening(folder, environ=KEYS))
    try:
        return [*await provider.check(offers or (OFFER,))]
    finally:
        await provider.close()
        assert not ec2.machines


async def test_offers_that_can_be_rented_pass(ec2: Ec2Server, tmp_path: Path) -> None:
    image = ec2.image()
    ec2.template("gpu-nodes", {"ImageId": image})
    subnets = {zone: ec2.subnet(zone) for zone in ZONES}
    groups = [ec2.security_group()]
    both = (OFFER, structs.replace(OFFER, spot=True, zone=ZONES[2]))
    assert await checked(ec2, tmp_path, *both, image=image, subnets=subnets, security_groups=groups) == []
    assert ec2.count("RunInstances") == 2
    assert await checked(ec2, tmp_path, *both, launch_template="gpu-nodes") == []


async def test_each_thing_that_does_not_exist_is_told_in_its_own_line(ec2: Ec2Server, tmp_path: Path) -> None:
    wrong = (
        structs.replace(OFFER, type="m5.enormous"),
        structs.replace(OFFER, zone="eu-central-1x"),
        structs.replace(OFFER, zone=ZONES[1]),
    )
    subnets = {"eu-central-1a": "subnet-0", ZONES[1]: ec2.subnet(ZONES[0])}
    lines = await checked(
        ec2,
        tmp_path,
        *wrong,
        image="ami-0123456789",
        subnets=subnets,
        security_groups=["sg-0"],
        key="lost",
        launch_template="nowhere",
    )
    assert lines == [
        f"the zone eu-central-1x is not in {REGION}; there are {', '.join(ZONES)}",
        f"{REGION} has no machines of type 'm5.enormous'; write another type",
        f"there is no image ami-0123456789 in {REGION}; set `image` to an AMI of that region",
        f"there is no subnet subnet-0 in {REGION}; set one for {ZONES[0]} under `subnets`",
        f"the subnet {subnets[ZONES[1]]} is in {ZONES[0]}, and `subnets` has it for {ZONES[1]}",
        f"there is no security group sg-0 in {REGION}; set `security_groups` to ids (sg-...)",
        f"there is no key pair 'lost' in {REGION}; set `key` to one that exists",
        f"there is no launch template 'nowhere' in {REGION}",
    ]
    assert not ec2.count("RunInstances")


async def test_an_image_for_another_processor_is_told(ec2: Ec2Server, tmp_path: Path) -> None:
    image = ec2.image("arm64")
    assert await checked(ec2, tmp_path, image=image) == [
        f"machines of type m5.large are x86_64, and the image {image} is arm64; set an image for this type under `images`"
    ]
    assert await checked(ec2, tmp_path, image=image, images={"m5": ec2.image()}) == []


async def test_what_the_account_may_not_do_is_told(ec2: Ec2Server, tmp_path: Path) -> None:
    image = ec2.image()
    ec2.fail("RunInstances", "UnauthorizedOperation", 403)
    assert await checked(ec2, tmp_path, image=image) == [
        "EC2 would not create m5.large/eu-central-1a/on-demand: UnauthorizedOperation: the wrapper says so"
    ]
    ec2.fail("DescribeImages", "UnauthorizedOperation", 403)
    assert await checked(ec2, tmp_path, image=image) == [
        f"EC2 in {REGION}: UnauthorizedOperation: the wrapper says so"
    ]
    ec2.fail("DescribeAvailabilityZones", "AuthFailure", 401)
    assert await checked(ec2, tmp_path, image=image) == [
        f"EC2 in {REGION} does not answer questions: AuthFailure: the wrapper says so"
    ]


# --- the page

ROOT = Path(__file__).parents[3]


def aws_section() -> str:
    page = (ROOT / "docs" / "pools.md").read_text()
    return page.partition("\n## aws\n")[2].partition("\n## ")[0]


def test_every_option_and_no_other_is_on_the_page() -> None:
    table = aws_section().partition("| option |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == [*AwsForm.__struct_fields__]


def test_the_policy_on_the_page_allows_all_that_the_provider_does() -> None:
    (policy,) = re.findall(r"```json\n(.*?)```", aws_section(), re.DOTALL)
    allowed = {
        action
        for statement in json.loads(policy)["Statement"]
        for action in (
            statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        )
    }
    source = "".join(path.read_text() for path in (ROOT / "src/spillover/providers/aws").glob("*.py"))
    done = set(re.findall(r'"((?:describe|run|terminate)_\w+)"', source))
    actions = {f"ec2:{name.title().replace('_', '')}" for name in done}
    assert allowed == actions | {"ec2:CreateTags"}
    assert actions == {f"ec2:{name}" for name in ACTIONS}
