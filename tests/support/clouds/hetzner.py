"""A fake of the API of Hetzner Cloud, as far as a provider of machines uses it."""

import re
from datetime import UTC, datetime
from itertools import count
from typing import Any

from tests.support.clouds.server import FakeApi, Reply, Request

TOKEN = "hetzner-token"
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")
_LABEL = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
_MOST_USER_DATA = 32 * 1024
_FIELDS = {
    "name", "server_type", "image", "location", "labels", "user_data", "ssh_keys", "networks", "firewalls",
    "public_net", "start_after_create",
}  # fmt: skip


def a_type(name: str, cores: int, memory: float, locations: tuple[str, ...], arch: str = "x86") -> Any:
    return {
        "name": name,
        "cores": cores,
        "memory": memory,
        "architecture": arch,
        "prices": [
            {"location": each, "price_hourly": {"net": "0.0060000000", "gross": "0.0071400000"}}
            for each in locations
        ],
    }


class FakeHetzner(FakeApi):
    """One project."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: dict[int, dict[str, Any]] = {}
        self.types = [
            a_type("cx22", 2, 4.0, ("fsn1", "nbg1")),
            a_type("cax11", 2, 4.0, ("fsn1",), "arm"),
            a_type("ccx63", 48, 192.0, ("fsn1", "nbg1", "ash")),
        ]
        self.locations = ["fsn1", "nbg1", "ash"]
        self.images = [{"id": 7, "name": "debian-13", "architecture": "x86"}]
        self.most = 50
        """The limit of the account."""
        self.page = 50
        """Most entries of a page, if fewer than asked for."""
        self.lag = 0
        """Lists in which new servers are missing."""
        self.broken_page = 0
        """A page that is not answered; 0 for none."""
        self._ids = count(4711)

    def answer(self, request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return error(401, "unauthorized", "unable to authenticate")
        match (request.method, request.path.strip("/").split("/")):
            case ("POST", ["v1", "servers"]):
                return self._create(request.body)
            case ("GET", ["v1", "servers"]):
                return self._list(request)
            case ("DELETE", ["v1", "servers", id_]):
                return self._delete(int(id_))
            case ("GET", ["v1", "server_types"]):
                return self._page(request, "server_types", self.types)
            case ("GET", ["v1", "locations"]):
                return self._page(request, "locations", [{"name": each} for each in self.locations])
            case ("GET", ["v1", "images"]):
                name = request.query.get("name")
                return self._page(
                    request, "images", [each for each in self.images if name in {None, each["name"]}]
                )
        return error(404, "not_found", f"{request} is not there")

    # --- requests

    def _create(self, body: dict[str, Any]) -> Reply:
        if bad := self._flaw(body):
            return error(422, "invalid_input", f"invalid input in field '{bad}'", bad)
        if any(each["name"] == body["name"] for each in self.servers.values()):
            return error(409, "uniqueness_error", "server name is already used", "name")
        if len(self.servers) >= self.most:
            return error(403, "resource_limit_exceeded", "server limit exceeded")
        sold = {each["location"] for each in self._type(body["server_type"])["prices"]}
        if body.get("location") is not None and body["location"] not in sold:
            return error(412, "resource_unavailable", "error during placement")
        server = {
            "id": next(self._ids),
            "name": body["name"],
            "status": "initializing",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "labels": dict(body.get("labels", {})),
            "user_data": body.get("user_data", ""),
            "asked": body,
            "hidden": self.lag,
        }
        self.servers[server["id"]] = server
        actions = {"action": {"id": 1, "command": "create_server", "status": "running"}, "next_actions": []}
        return Reply(201, {"server": _shown(server), **actions, "root_password": None})

    def _flaw(self, body: dict[str, Any]) -> str:
        """Return the first field that is not valid."""
        if unknown := sorted(body.keys() - _FIELDS):
            return unknown[0]
        labels = body.get("labels", {})
        checks = {
            "name": _HOST.fullmatch(str(body.get("name"))),
            "server_type": any(each["name"] == body.get("server_type") for each in self.types),
            "image": any(str(body.get("image")) in {str(each["id"]), each["name"]} for each in self.images),
            "location": body.get("location") in {None, *self.locations},
            "labels": all(_LABEL.fullmatch(each) for each in [*labels, *labels.values()])
            and "" not in labels,
            "user_data": len(body.get("user_data", "").encode()) <= _MOST_USER_DATA,
        }
        return next((name for name, sound in checks.items() if not sound), "")

    def _list(self, request: Request) -> Reply:
        if self.broken_page == int(request.query.get("page", "1")):
            return error(503, "service_error", "service error")
        name = request.query.get("name")
        shown = []
        for server in self.servers.values():
            if server["hidden"]:
                server["hidden"] -= 1
            elif name in {None, server["name"]}:
                shown.append(_shown(server))
        reply = self._page(request, "servers", shown)
        for server in list(self.servers.values()):
            if server["status"] == "deleting":
                del self.servers[server["id"]]
            elif server["status"] == "initializing":
                server["status"] = "running"
        return reply

    def _delete(self, id_: int) -> Reply:
        if id_ not in self.servers:
            return error(404, "not_found", f"server with ID '{id_}' not found")
        self.servers[id_]["status"] = "deleting"
        return Reply(200, {"action": {"id": 2, "command": "delete_server", "status": "running"}})

    def _page(self, request: Request, name: str, entries: list[Any]) -> Reply:
        page = int(request.query.get("page", "1"))
        size = min(self.page, int(request.query.get("per_page", "25")))
        last = max(1, -(-len(entries) // size))
        pagination = {
            "page": page,
            "per_page": size,
            "previous_page": page - 1 if page > 1 else None,
            "next_page": page + 1 if page < last else None,
            "last_page": last,
            "total_entries": len(entries),
        }
        return Reply(
            200, {name: entries[(page - 1) * size : page * size], "meta": {"pagination": pagination}}
        )

    def _type(self, name: str) -> Any:
        return next(each for each in self.types if each["name"] == name)


def error(status: int, code: str, message: str, field: str = "") -> Reply:
    """Return an error as the API writes it."""
    fields = {"fields": [{"name": field, "messages": ["is not valid"]}]} if field else None
    return Reply(status, {"error": {"code": code, "message": message, "details": fields}})


def _shown(server: dict[str, Any]) -> dict[str, Any]:
    return {key: server[key] for key in ("id", "name", "status", "created", "labels")}
