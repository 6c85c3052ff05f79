"""The request that creates a machine. The same order and options always give the same request."""

from collections.abc import Mapping
from typing import Any

from spillover.model.pools import Offer
from spillover.model.units import parse_memory
from spillover.ports.provider import Order
from spillover.providers.aws.options import AwsForm
from spillover.providers.userdata import user_data

GIB = 2**30


def image_of(form: AwsForm, type_: str) -> str | None:
    """Return the image for a type of machine; None if the launch template has it."""
    return form.images.get(type_) or form.images.get(type_.partition(".")[0]) or form.image


def request_of(form: AwsForm, order: Order, root_device: str = "") -> dict[str, Any]:
    """Return the parameters of RunInstances for an order; `root_device` is that of the image, if `disk` is set."""
    tags = form.tags | {"Name": order.name} | order.tags
    tagged = [{"Key": key, "Value": value} for key, value in tags.items()]
    request = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": order.token,
        "UserData": user_data(order, form.setup, form.program),
        "TagSpecifications": [{"ResourceType": kind, "Tags": tagged} for kind in ("instance", "volume")],
        # A machine that turns itself off is gone, and costs nothing.
        "InstanceInitiatedShutdownBehavior": "terminate",
        # Version 2 needs a request that tasks cannot make others send for them; one hop ends before containers.
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 1,
        },
        **_hardware(form, order.offer),
    }
    if order.group and form.placement_group:
        request["Placement"] = {**request.get("Placement", {}), "GroupName": form.placement_group}
    if form.disk is not None and root_device:
        size = -(-parse_memory(str(form.disk)) // GIB)
        volume = {"VolumeSize": size, "VolumeType": form.disk_type, "DeleteOnTermination": True}
        request["BlockDeviceMappings"] = [{"DeviceName": root_device, "Ebs": volume}]
    return request


def trial_of(form: AwsForm, offer: Offer) -> dict[str, Any]:
    """Return the parameters of RunInstances that only ask whether a machine of an offer could be created."""
    return {"MinCount": 1, "MaxCount": 1, "DryRun": True, **_hardware(form, offer)}


def _hardware(form: AwsForm, offer: Offer) -> dict[str, Any]:
    """Return what is the same for all machines of an offer."""
    made: dict[str, Any] = {"InstanceType": offer.type, **_network(form, offer.zone)}
    if image := image_of(form, offer.type):
        made["ImageId"] = image
    if form.launch_template:
        made["LaunchTemplate"] = template_of(form.launch_template)
    if form.key:
        made["KeyName"] = form.key
    if form.instance_profile:
        kind = "Arn" if form.instance_profile.startswith("arn:") else "Name"
        made["IamInstanceProfile"] = {kind: form.instance_profile}
    if offer.spot:
        made["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    return made


def _network(form: AwsForm, zone: str) -> dict[str, Any]:
    """Return where the machine is: its zone or subnet, security groups and addresses."""
    subnet, groups = form.subnets.get(zone), list(form.security_groups)
    placed = {"Placement": {"AvailabilityZone": zone}} if zone and not subnet else {}
    if form.public_ip is None:
        plain = {"SubnetId": subnet, "SecurityGroupIds": groups}
        return placed | {name: value for name, value in plain.items() if value}
    interface = {
        "DeviceIndex": 0,
        "AssociatePublicIpAddress": form.public_ip,
        "DeleteOnTermination": True,
        "SubnetId": subnet,
        "Groups": groups,
    }
    return placed | {
        "NetworkInterfaces": [{name: value for name, value in interface.items() if value not in (None, [])}]
    }


def template_of(written: str) -> Mapping[str, str]:
    """Return a launch template as EC2 takes it, from NAME, lt-ID, NAME:VERSION or lt-ID:VERSION."""
    name, _, version = written.partition(":")
    key = "LaunchTemplateId" if name.startswith("lt-") else "LaunchTemplateName"
    return {key: name, "Version": version or "$Default"}
