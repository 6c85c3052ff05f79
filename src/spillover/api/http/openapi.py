"""The OpenAPI 3.1 document, made from the table of routes and the types that it names."""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from spillover import __version__
from spillover.api.http.problems import MEDIA
from spillover.api.http.routes import JSON, OCTETS, Route
from spillover.forms.schema import refine
from spillover.model.ids import NAME_RULE
from spillover.ports.blobs import DIGEST_RULE
from spillover.wire.api import Problem

_REF: Final = "#/components/schemas/{name}"
_ALWAYS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_NAME: Final = {
    "type": "string",
    "pattern": "^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
    "maxLength": 63,
}
_USER: Final = {
    "name": "Spill-User",
    "in": "header",
    "required": False,
    "description": f"Who asks; `anonymous` if left out. {NAME_RULE}.",
    "schema": _NAME,
}
_JOB: Final = {
    "name": "job",
    "in": "path",
    "required": True,
    "description": "An id, a unique prefix of one, or a unique name",
    "schema": _NAME,
}
_DIGEST: Final = {
    "name": "digest",
    "in": "path",
    "required": True,
    "description": f"What a blob is named by: {DIGEST_RULE}",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_ABOUT: Final = (
    "Jobs, clusters and history of a Spillover server. Times are RFC 3339 UTC, durations are seconds, costs are numbers in the "
    "server's currency. Every error is a problem document (RFC 9457); its `problems` name all that is wrong with what was sent."
)


def describe(routes: Sequence[Route[Any, Any]]) -> bytes:
    """The document, as JSON."""
    types = list(dict.fromkeys(_types(routes)).keys())
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    refine(components)
    schema = dict(zip(types, schemas, strict=True))
    queries = {route.query.__name__: components.pop(route.query.__name__, {}) for route in routes}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        asked = queries[route.query.__name__].get("properties", {})
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema, asked)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Spillover", "version": __version__, "description": _ABOUT},
            "servers": [{"url": "/"}],
            "security": [{"token": []}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _types(routes: Sequence[Route[Any, Any]]) -> Iterator[Any]:
    """Every type that the document describes."""
    yield Problem
    for route in routes:
        yield route.query
        yield from route.body.types if route.body is not None else ()
        yield from (answer for answer in (route.answer, route.unready) if answer is not None)


def _operation(route: Route[Any, Any], schema: dict[Any, Any], asked: dict[str, Any]) -> dict[str, Any]:
    """One operation."""
    answer = {} if route.answer is None else {"schema": schema[route.answer]}
    problem = {MEDIA: {"schema": schema[Problem]}}
    responses: dict[str, Any] = {
        str(int(route.status)): {"description": "Done", "content": {route.media: answer}}
    }
    for status in (*_ALWAYS, *map(HTTPStatus, route.errors)):
        responses[str(int(status))] = {"description": status.phrase, "content": problem}
    if route.unready is not None:
        responses["503"] = {"description": "Not ready", "content": {JSON: {"schema": schema[route.unready]}}}
    responses["default"] = {"description": "Any other problem", "content": problem}
    parameters = [_JOB] if "{job}" in route.path else [_DIGEST] if "{digest}" in route.path else []
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": _without_null(form)}
        for name, form in asked.items()
    ]
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    }
    if route.body is not None:
        forms = [schema[form] for form in route.body.types]
        form = forms[0] if len(forms) == 1 else {"anyOf": forms}
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": form}}}
    if route.streamed:
        operation["requestBody"] = {"required": True, "content": {OCTETS: {}}}
        responses["200"] = responses[str(int(route.status))] | {"description": "It was there"}
    if route.open:
        operation["security"] = []
    else:
        parameters.append(_USER)
    return operation


def _without_null(form: dict[str, Any]) -> dict[str, Any]:
    """The schema of a query parameter, which is left out rather than null."""
    form = {name: value for name, value in form.items() if (name, value) != ("default", None)}
    if "enum" in form:
        form["enum"] = [value for value in form["enum"] if value is not None]
    if "anyOf" in form:
        (only,) = (choice for choice in form.pop("anyOf") if choice != {"type": "null"})
        form |= only
    return form
