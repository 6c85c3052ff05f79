"""Reads machines from what EC2 lists."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from spillover.model.bounds import plain
from spillover.model.units import time_of
from spillover.ports.provider import MACHINE_TAG, OWNER_TAG, Listed, Presence, name_prefix

_PRESENCE: Final = {
    "pending": Presence.PENDING,
    "running": Presence.RUNNING,
    "shutting-down": Presence.STOPPING,
    "stopping": Presence.STOPPING,
    "stopped": Presence.STOPPING,
    "terminated": Presence.GONE,
}
_TAKEN_BACK: Final = ("Server.SpotInstanceTermination", "Server.SpotInstanceShutdown")


def questions(owner: str) -> tuple[list[dict[str, Any]], ...]:
    """Return the filters that together find all machines of an owner, the most telling first.

    Names are tags too. What nobody can remove is the token of the order: it begins like the name.
    """
    begins = [f"{name_prefix(owner)}*"]
    return (
        [{"Name": f"tag:{OWNER_TAG}", "Values": [owner]}],
        [{"Name": "tag:Name", "Values": begins}],
        [{"Name": "client-token", "Values": begins}],
    )


def read_instance(instance: Mapping[str, Any], owner: str) -> Listed | None:
    """Return a machine that a listing for an owner shows; None if it is somebody else's."""
    tags = tags_of(instance)
    if tags.get(OWNER_TAG, owner) != owner:
        return None  # another owner, whose names begin alike
    name, token = tags.get("Name", ""), str(instance.get("ClientToken") or "")
    begins = name_prefix(owner)
    if not name.startswith(begins) and token.startswith(begins):
        name = token
    reason = instance.get("StateReason") or {}
    presence = _PRESENCE.get(str((instance.get("State") or {}).get("Name")), Presence.RUNNING)
    told = reason.get("Message") or instance.get("StateTransitionReason") or ""
    return Listed(
        id=str(instance["InstanceId"]),
        presence=presence,
        machine=tags.get(MACHINE_TAG, ""),
        owner=tags.get(OWNER_TAG, ""),
        name=name,
        at=launched(instance),
        reason=""
        if presence in (Presence.PENDING, Presence.RUNNING)
        else plain(" ".join(str(told).split())[:300]),
        interrupted=reason.get("Code") in _TAKEN_BACK,
    )


def tags_of(instance: Mapping[str, Any]) -> dict[str, str]:
    """Return the tags of an instance."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in instance.get("Tags") or ()}


def launched(instance: Mapping[str, Any]) -> int | None:
    """Return when an instance was created, nanoseconds UTC; None if EC2 does not say."""
    at = instance.get("LaunchTime")
    return time_of(at) if isinstance(at, datetime) else None
