"""An order as a request to Compute Engine: the machine that it describes, and the id under which it is sent."""

import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

from spillover.ports.provider import Order
from spillover.providers.gce.kind import GceForm
from spillover.providers.userdata import user_data

MOST_LABEL: Final = 63
"""Characters of the value of a label."""
NAMESPACE: Final = uuid.UUID("7c2a5d1e-0f3b-5c64-9d7e-3a1b8e6f4c20")
"""Of request ids; any constant would do."""
_UNFIT: Final = re.compile(r"[^a-z0-9-]", re.ASCII)
_ESCAPED: Final = re.compile(r"_([0-9a-f]{2})", re.ASCII)


def body_of(order: Order, form: GceForm) -> Mapping[str, Any]:
    """Return the request for a machine."""
    offer = order.offer
    zone, gpus = f"zones/{offer.zone}", offer.resources.gpu
    interface: dict[str, Any] = {"subnetwork": form.subnetwork} if form.subnetwork else {}
    if form.network or not form.subnetwork:
        interface["network"] = form.network or "global/networks/default"
    if form.public_ip:
        interface["accessConfigs"] = [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]
    scheduling: dict[str, Any] = {
        "provisioningModel": "SPOT" if offer.spot else "STANDARD",
        # A machine that failed counts as gone, so it must not come back later.
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE" if offer.spot or gpus else "MIGRATE",
    }
    if offer.spot:
        scheduling["instanceTerminationAction"] = "DELETE"
    disk = {
        "sourceImage": form.image,
        "diskSizeGb": str(form.disk_gb),
        "diskType": f"{zone}/diskTypes/{form.disk_type}",
    }
    labels = {key: escaped(value) for key, value in order.tags.items()}
    body: dict[str, Any] = {
        "name": order.name,
        "machineType": f"{zone}/machineTypes/{offer.type}",
        "labels": {key: value for key, value in labels.items() if len(value) <= MOST_LABEL},
        "metadata": {
            "items": [{"key": "startup-script", "value": user_data(order, form.setup, form.program)}]
        },
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": disk}],
        "networkInterfaces": [interface],
        "scheduling": scheduling,
    }
    if form.tags:
        body["tags"] = {"items": form.tags}
    if form.service_account:
        scope = "https://www.googleapis.com/auth/cloud-platform"
        body["serviceAccounts"] = [{"email": form.service_account, "scopes": [scope]}]
    if form.accelerator and gpus:
        kind = f"{zone}/acceleratorTypes/{form.accelerator}"
        body["guestAccelerators"] = [{"acceleratorType": kind, "acceleratorCount": gpus}]
    return body


def request_id(token: str) -> str:
    """Return the request id that belongs to the token of an order."""
    return str(uuid.uuid5(NAMESPACE, token))


def escaped(text: str) -> str:
    """Return a text as the value of a label: lower-case letters, digits and hyphens, and `_xx` for every other byte."""
    return _UNFIT.sub(lambda found: "".join(f"_{byte:02x}" for byte in found[0].encode()), text)


def unescaped(text: str) -> str:
    """Return what `escaped` was given."""
    return bytes(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), text), "latin-1", "replace").decode(
        errors="replace"
    )
