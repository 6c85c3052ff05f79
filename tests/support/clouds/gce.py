"""A fake of Google Compute Engine: service accounts, operations and instances, as far as a provider uses them."""

import base64
import json
import re
import time
import uuid
from collections import deque
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.clouds.server import FakeApi, Reply, Request

PROJECT = "lab-42"
EMAIL = "spill@lab-42.iam.gserviceaccount.com"
_NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?")
_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_VALUE = re.compile(r"[-_a-z0-9]{0,63}")
_FILTER = re.compile(r"\(labels\.spillover-owner = (\S+)\) OR \(name : (\S+)\)")
_MOST_METADATA = 256 * 1024


@cache
def private_key() -> rsa.RSAPrivateKey:
    """Return the key of the service account, which is short: whoever loads it checks that its factors are prime."""
    return rsa.generate_private_key(65537, 1024)


class FakeGce(FakeApi):
    """One project."""

    def __init__(self) -> None:
        super().__init__()
        self.instances: dict[tuple[str, str], dict[str, Any]] = {}
        self.operations: dict[str, dict[str, Any]] = {}
        self.requests: dict[str, str] = {}
        """Operations by request id."""
        self.zones = ["us-east1-b", "us-east1-c", "us-east1-d"]
        self.types: dict[str, Any] = {
            "e2-small": {"guestCpus": 2, "memoryMb": 2048},
            "n1-standard-8": {"guestCpus": 8, "memoryMb": 30720},
            "a2-highgpu-1g": {
                "guestCpus": 12,
                "memoryMb": 87040,
                "accelerators": [{"guestAcceleratorType": "nvidia-tesla-a100", "guestAcceleratorCount": 1}],
            },
        }
        self.images = ["projects/debian-cloud/global/images/family/debian-13"]
        self.polls = 1
        """Looks at an operation before it is done."""
        self.failing: deque[str] = deque()
        """Codes with which the next operations fail after they were accepted."""
        self.page = 500
        """Most instances of a page."""
        self.broken_page = 0
        """A page that is not answered; 0 for none."""
        self.unreachable_zones: set[str] = set()
        self.granted = 0
        """Tokens that were given out."""
        self.valid: set[str] = set()
        """Tokens that are accepted."""
        self.deny = ""
        """Why no tokens are given out."""
        self._numbers = count(1)

    def key_file(self, folder: Path, **more: str) -> Path:
        """Write the key file of the service account."""
        pem = private_key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        key = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "key-1",
            "private_key": pem.decode(),
            "client_email": EMAIL,
            "token_uri": f"{self.url}/token",
        }
        path = folder / "key.json"
        path.write_text(json.dumps(key | more))
        return path

    def answer(self, request: Request) -> Reply:
        parts = request.path.strip("/").split("/")
        if request.path == "/token":
            return self._token(dict(parse_qsl(request.content.decode())))
        if request.path.startswith("/computeMetadata/v1/instance/service-accounts/default/token"):
            if request.headers.get("metadata-flavor") != "Google":
                return Reply(403, b"missing header")
            return self._grant()
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            return error(401, "authError", "Invalid Credentials")
        if parts[:3] != ["compute", "v1", "projects"]:
            return error(404, "notFound", f"{request} is not there")
        if "/".join(parts[2:]) in self.images:
            return Reply(200, {"name": parts[-1]})
        if parts[3] != PROJECT:
            return error(404, "notFound", f"The resource 'projects/{parts[3]}' was not found")
        return self._of_project(request, parts[4:])

    def _of_project(self, request: Request, parts: list[str]) -> Reply:
        match (request.method, parts):
            case ("GET", ["aggregated", "instances"]):
                return self._list(request)
            case (_, ["zones", zone, *_]) if zone not in self.zones:
                return error(404, "notFound", f"The resource 'zones/{zone}' was not found")
            case ("GET", ["zones", zone]):
                return Reply(200, {"name": zone})
            case ("GET", ["zones", _, "machineTypes", name]) if name in self.types:
                return Reply(200, {"name": name, **self.types[name]})
            case ("POST", ["zones", zone, "instances"]):
                return self._insert(zone, request)
            case ("GET", ["zones", _, "operations", name]) if name in self.operations:
                return self._look(name)
            case ("GET", ["zones", zone, "instances", name]) if (zone, name) in self.instances:
                return Reply(200, self.instances[zone, name])
            case ("DELETE", ["zones", zone, "instances", name]) if (zone, name) in self.instances:
                return self._delete(zone, name)
        return error(404, "notFound", f"The resource '{'/'.join(parts)}' was not found")

    # --- tokens

    def _token(self, form: dict[str, str]) -> Reply:
        if form.get("grant_type") == "refresh_token":
            sound = form.get("refresh_token") == "refresh" and form.get("client_id") == "a-person"
        else:
            sound = self._is_signed(form.get("assertion", ""))
        if self.deny or not sound:
            told = self.deny or "Invalid JWT Signature."
            return Reply(400, {"error": "invalid_grant", "error_description": told})
        return self._grant()

    def _grant(self) -> Reply:
        self.granted += 1
        token = f"ya29.{self.granted}"
        self.valid.add(token)
        return Reply(200, {"access_token": token, "expires_in": 3599, "token_type": "Bearer"})

    def _is_signed(self, assertion: str) -> bool:
        head, claims, signature = (base64.urlsafe_b64decode(part + "==") for part in assertion.split("."))
        try:
            private_key().public_key().verify(
                signature, assertion.rpartition(".")[0].encode(), padding.PKCS1v15(), hashes.SHA256()
            )
        except InvalidSignature:
            return False
        said = json.loads(claims)
        return bool(
            json.loads(head) == {"alg": "RS256", "typ": "JWT", "kid": "key-1"}
            and said["iss"] == EMAIL
            and said["aud"] == f"{self.url}/token"
            and said["scope"].endswith("/auth/compute")
            and abs(said["iat"] - time.time()) < 300
            and 0 < said["exp"] - said["iat"] <= 3600
        )

    # --- instances

    def _insert(self, zone: str, request: Request) -> Reply:
        id_, body = request.query.get("requestId", ""), request.body
        if id_:
            uuid.UUID(id_)
        if id_ in self.requests:
            return Reply(200, self.operations[self.requests[id_]])
        if bad := self._flaw(zone, body):
            return error(400, "invalid", f"Invalid value for field 'resource.{bad}'")
        name = body["name"]
        if (zone, name) in self.instances:
            return error(409, "alreadyExists", f"The resource 'instances/{name}' already exists")
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        operation: dict[str, Any] = {
            "name": f"operation-{next(self._numbers)}",
            "status": "RUNNING",
            "insertTime": now,
            "looks": self.polls,
            "fails": self.failing.popleft() if self.failing else "",
            "about": (zone, name),
        }
        self.operations[operation["name"]] = operation
        self.requests[id_] = operation["name"]
        self.instances[zone, name] = {
            **body,
            "id": str(next(self._numbers)),
            "zone": f"{self.url}/compute/v1/projects/{PROJECT}/zones/{zone}",
            "status": "PROVISIONING",
            "creationTimestamp": now,
        }
        return Reply(200, operation)

    def _flaw(self, zone: str, body: dict[str, Any]) -> str:
        """Return the first field that is not valid."""
        labels, disk = body.get("labels", {}), body["disks"][0]["initializeParams"]
        values = [each["value"] for each in body.get("metadata", {}).get("items", [])]
        scheduling = body.get("scheduling", {})
        spot = scheduling.get("provisioningModel") == "SPOT"
        checks = {
            "name": _NAME.fullmatch(str(body.get("name"))),
            "machineType": body.get("machineType")
            in {f"zones/{zone}/machineTypes/{each}" for each in self.types},
            "labels": all(_KEY.fullmatch(key) and _VALUE.fullmatch(value) for key, value in labels.items()),
            "metadata": all(len(each.encode()) <= _MOST_METADATA for each in values),
            "disks[0].initializeParams.sourceImage": disk["sourceImage"] in self.images,
            "disks[0].initializeParams.diskType": disk["diskType"] == f"zones/{zone}/diskTypes/pd-balanced",
            "networkInterfaces": body.get("networkInterfaces"),
            "scheduling.automaticRestart": not (spot and scheduling.get("automaticRestart", True)),
            "scheduling.instanceTerminationAction": spot or "instanceTerminationAction" not in scheduling,
        }
        return next((name for name, sound in checks.items() if not sound), "")

    def _look(self, name: str) -> Reply:
        operation = self.operations[name]
        operation["looks"] -= 1
        if operation["looks"] <= 0 and operation["status"] != "DONE":
            operation["status"] = "DONE"
            if code := operation["fails"]:
                operation["error"] = {"errors": [{"code": code, "message": f"it is {code.lower()}"}]}
                self.instances.pop(operation["about"], None)
        return Reply(200, operation)

    def _delete(self, zone: str, name: str) -> Reply:
        instance = self.instances[zone, name]
        if instance["status"] == "STOPPING":
            return error(400, "resourceNotReady", f"The resource 'instances/{name}' is not ready")
        instance["status"] = "STOPPING"
        return Reply(200, {"name": f"operation-{next(self._numbers)}", "status": "PENDING"})

    def _list(self, request: Request) -> Reply:
        asked = _FILTER.fullmatch(request.query.get("filter", ""))
        if asked is None:
            return error(400, "invalid", "Invalid value for field 'filter'")
        first = int(request.query.get("pageToken", "0"))
        if self.broken_page and first == (self.broken_page - 1) * self.page:
            return error(503, "backendError", "Backend Error")
        ours = [
            (zone, each)
            for (zone, name), each in self.instances.items()
            if each.get("labels", {}).get("spillover-owner") == asked[1] or asked[2] in name
        ]
        items: dict[str, Any] = {}
        for zone in self.zones:
            if zone in self.unreachable_zones:
                items[f"zones/{zone}"] = {
                    "warning": {"code": "UNREACHABLE", "message": f"{zone} is unreachable"}
                }
                continue
            shown = [each for where, each in ours[first : first + self.page] if where == zone]
            nothing = {
                "warning": {"code": "NO_RESULTS_ON_PAGE", "message": f"There are no results for {zone}"}
            }
            items[f"zones/{zone}"] = {"instances": [dict(each) for each in shown]} if shown else nothing
        answer: dict[str, Any] = {"items": items}
        if first + self.page < len(ours):
            answer["nextPageToken"] = str(first + self.page)
        for key, each in list(self.instances.items()):
            if each["status"] == "STOPPING":
                del self.instances[key]
            elif each["status"] == "PROVISIONING":
                each["status"] = "RUNNING"
        return Reply(200, answer)


def error(status: int, reason: str, message: str) -> Reply:
    """Return an error as the API writes it."""
    errors = [{"message": message, "domain": "global", "reason": reason}]
    return Reply(status, {"error": {"code": status, "message": message, "errors": errors}})
