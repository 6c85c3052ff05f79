"""Whether the machines of offers can be rented, asked of EC2 without creating any."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from spillover.forms.problems import shown
from spillover.model.pools import Offer
from spillover.providers.aws.answers import DRY_RUN, FAILURES, NoAccess, Said
from spillover.providers.aws.calls import Calls
from spillover.providers.aws.launching import image_of, template_of, trial_of
from spillover.providers.aws.options import AwsForm

Lines = list[str]
_MANY: Final = 100
"""Types in a question."""


async def check_offers(calls: Calls, form: AwsForm, offers: Sequence[Offer]) -> Sequence[str]:
    """Return why offers cannot be rented, one line each; empty if they can."""
    if not calls.region:
        return ["there is no region; set `region`, or AWS_REGION"]
    try:
        zones = await _zones(calls)
    except NoAccess as failure:
        return [str(failure)]
    except FAILURES as failure:
        # Nothing else can be asked with the wrong region or credentials.
        return [f"EC2 in {calls.region} does not answer questions: {failure}"]
    lines = [
        f"the zone {each} is not in {calls.region}; there are {', '.join(sorted(zones))}"
        for each in sorted({offer.zone for offer in offers if offer.zone} - zones)
    ]
    asked: list[Callable[[], Awaitable[Lines]]] = [
        lambda: _types(calls, offers, zones),
        lambda: _images(calls, form, offers),
        lambda: _subnets(calls, form, offers),
        lambda: _groups(calls, form),
        lambda: _key(calls, form),
        lambda: _template(calls, form),
    ]
    for question in asked:
        try:
            lines += await question()
        except FAILURES as failure:
            lines.append(f"EC2 in {calls.region}: {failure}")
    return lines or await _trials(calls, form, offers)


async def _zones(calls: Calls) -> set[str]:
    answer = await calls.call("describe_availability_zones")
    return {str(each["ZoneName"]) for each in answer.get("AvailabilityZones") or ()}


async def _types(calls: Calls, offers: Sequence[Offer], zones: set[str]) -> Lines:
    """Return types that do not exist in the region, or not in the zone of their offer."""
    types = sorted({each.type for each in offers})
    where: dict[str, set[str]] = {each: set() for each in types}
    for at in range(0, len(types), _MANY):
        async for page in calls.pages(
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": types[at : at + _MANY]}],
        ):
            for each in page:
                where.setdefault(str(each["InstanceType"]), set()).add(str(each["Location"]))
    lines = [
        f"{calls.region} has no machines of type {shown(each)}; write another type"
        for each in types
        if not where[each]
    ]
    return lines + [
        f"there are no machines of type {type_} in {zone}; there are in {', '.join(sorted(where[type_]))}"
        for type_, zone in sorted({(each.type, each.zone) for each in offers if each.zone in zones})
        if where[type_] and zone not in where[type_]
    ]


async def _images(calls: Calls, form: AwsForm, offers: Sequence[Offer]) -> Lines:
    """Return images that do not exist, or that machines of their type cannot run."""
    used: dict[str, list[str]] = {}
    for type_ in sorted({each.type for each in offers}):
        if (image := image_of(form, type_)) and image.startswith("ami-"):
            used.setdefault(image, []).append(type_)
    lines: Lines = []
    for image, types in used.items():
        found: Sequence[Any] = ()
        try:
            found = (await calls.call("describe_images", ImageIds=[image])).get("Images") or ()
        except Said as said:
            if not said.code.startswith("InvalidAMIID"):
                raise
        if not found:
            lines.append(f"there is no image {image} in {calls.region}; set `image` to an AMI of that region")
        elif (state := found[0].get("State", "available")) != "available":
            lines.append(f"the image {image} is {state}; set `image` to one that is available")
        else:
            lines += await _architectures(calls, image, str(found[0].get("Architecture", "")), types)
    return lines


async def _architectures(calls: Calls, image: str, architecture: str, types: Sequence[str]) -> Lines:
    """Return types of machines that cannot run an image."""
    lines: Lines = []
    try:
        async for page in calls.pages(
            "describe_instance_types", "InstanceTypes", InstanceTypes=list(types[:_MANY])
        ):
            for each in page:
                runs = (each.get("ProcessorInfo") or {}).get("SupportedArchitectures") or ()
                if architecture and runs and architecture not in runs:
                    lines.append(
                        f"machines of type {each['InstanceType']} are {' or '.join(runs)}, and the image {image} is "
                        f"{architecture}; set an image for this type under `images`"
                    )
    except Said as said:
        if not said.code.startswith("InvalidInstanceType"):  # told by the check of types
            raise
    return lines


async def _subnets(calls: Calls, form: AwsForm, offers: Sequence[Offer]) -> Lines:
    """Return subnets that do not exist, or are in another zone."""
    used = {
        zone: form.subnets[zone] for zone in sorted({each.zone for each in offers}) if zone in form.subnets
    }
    lines: Lines = []
    for zone, subnet in used.items():
        found = await _found(calls, "describe_subnets", "Subnets", "InvalidSubnetID", SubnetIds=[subnet])
        if not found:
            lines.append(f"there is no subnet {subnet} in {calls.region}; set one for {zone} under `subnets`")
        elif (there := found[0].get("AvailabilityZone")) != zone:
            lines.append(f"the subnet {subnet} is in {there}, and `subnets` has it for {zone}")
    return lines


async def _groups(calls: Calls, form: AwsForm) -> Lines:
    return [
        f"there is no security group {each} in {calls.region}; set `security_groups` to ids (sg-...)"
        for each in form.security_groups
        if not await _found(
            calls, "describe_security_groups", "SecurityGroups", "InvalidGroup", GroupIds=[each]
        )
    ]


async def _key(calls: Calls, form: AwsForm) -> Lines:
    if form.key is None or await _found(
        calls, "describe_key_pairs", "KeyPairs", "InvalidKeyPair", KeyNames=[form.key]
    ):
        return []
    return [f"there is no key pair {shown(form.key)} in {calls.region}; set `key` to one that exists"]


async def _template(calls: Calls, form: AwsForm) -> Lines:
    if form.launch_template is None:
        return []
    named = dict(template_of(form.launch_template))
    versions = [named.pop("Version")]
    if await _found(
        calls,
        "describe_launch_template_versions",
        "LaunchTemplateVersions",
        "InvalidLaunchTemplate",
        Versions=versions,
        **named,
    ):
        return []
    return [f"there is no launch template {shown(form.launch_template)} in {calls.region}"]


async def _found(calls: Calls, operation: str, key: str, missing: str, **asked: Any) -> Sequence[Any]:
    """Return what there is of something named; nothing if EC2 says so by an error that begins with `missing`."""
    try:
        return (await calls.call(operation, **asked)).get(key) or ()
    except Said as said:
        if said.code.startswith(missing):
            return ()
        raise


async def _trials(calls: Calls, form: AwsForm, offers: Sequence[Offer]) -> Lines:
    """Return what EC2 says against creating machines: once for each market and image."""
    lines: Lines = []
    tried = {(each.spot, image_of(form, each.type)): each for each in reversed(offers)}
    for offer in reversed(tried.values()):
        try:
            await calls.call("run_instances", **trial_of(form, offer))
        except Said as said:
            if said.code != DRY_RUN:
                lines.append(f"EC2 would not create {offer.key}: {said}")
        except FAILURES as failure:
            lines.append(f"EC2 would not create {offer.key}: {failure}")
    return lines
