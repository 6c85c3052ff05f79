"""Generates the OpenAPI 3.1 document from the declarations of endpoints and their types."""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from spillover import __version__
from spillover.api.http.guard import COOKIE
from spillover.api.http.problems import MEDIA
from spillover.forms.schema import refine
from spillover.model.ids import NAME_RULE
from spillover.wire.api import Problem
from spillover.wire.endpoints import JSON, NO_BODY, SSE, UPLOAD, Content, Endpoint
from spillover.wire.parameters import NAME_PATTERN

_REF: Final = "#/components/schemas/{name}"
_ALWAYS: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_USER: Final = {
    "name": "Spill-User",
    "in": "header",
    "required": False,
    "description": f"The user; `anonymous` if left out. {NAME_RULE}.",
    "schema": {"type": "string", "pattern": NAME_PATTERN, "maxLength": 63},
}
_ABOUT: Final = (
    "Jobs, clusters and history of a Spillover server. Times are RFC 3339 UTC, durations are seconds, costs are numbers in the "
    "server's currency. Every error is a problem document (RFC 9457); its `problems` list everything that is "
    "wrong with the request."
)


def describe(endpoints: Sequence[Endpoint[Any, Any, Any]]) -> bytes:
    """Return the document as JSON."""
    types = list(dict.fromkeys(_types(endpoints)).keys())
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    refine(components)
    schema = dict(zip(types, schemas, strict=True))
    asked = {form: components.pop(form, {}) for form in {one.parameters.__name__ for one in endpoints}}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        forms = asked[endpoint.parameters.__name__].get("properties", {})
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, schema, forms)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "Spillover", "version": __version__, "description": _ABOUT},
            "servers": [{"url": "/"}],
            "security": [{"token": []}, {"sign_in": []}],
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {
                    "token": {"type": "http", "scheme": "bearer"},
                    "sign_in": {"type": "apiKey", "in": "cookie", "name": COOKIE},
                },
            },
        }
    )


def _types(endpoints: Sequence[Endpoint[Any, Any, Any]]) -> Iterator[Any]:
    """Yield every type that the document describes."""
    yield Problem
    for endpoint in endpoints:
        yield endpoint.parameters
        yield from endpoint.body.types
        yield from endpoint.answer.types
        if endpoint.unready is not None:
            yield endpoint.unready


def _operation(
    endpoint: Endpoint[Any, Any, Any], schema: dict[Any, Any], forms: dict[str, Any]
) -> dict[str, Any]:
    """Describe one operation, whose parameters have these schemas."""
    problem = {MEDIA: {"schema": schema[Problem]}}
    good = {"description": "Done", "content": _content(endpoint.answer, schema)}
    responses: dict[str, Any] = {str(int(endpoint.status)): good}
    for status in (*_ALWAYS, *endpoint.refusals):
        responses[str(int(status))] = {"description": status.phrase, "content": problem}
    if endpoint.unready is not None:
        unready = {JSON: {"schema": schema[endpoint.unready]}}
        responses["503"] = {"description": "Not ready", "content": unready}
    responses["default"] = {"description": "Any other problem", "content": problem}
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "parameters": [*_in_path(endpoint, forms), *_in_query(endpoint, forms)],
        "responses": responses,
    }
    if endpoint.body is not NO_BODY:
        operation["requestBody"] = {"required": True, "content": _content(endpoint.body, schema)}
    if endpoint.body is UPLOAD:
        responses["200"] = good | {"description": "It existed already"}
    if endpoint.open:
        operation["security"] = []
    else:
        operation["parameters"].append(_USER)
    return operation


def _content(content: Content[Any], schema: dict[Any, Any]) -> dict[str, Any]:
    """Describe the content of a body or an answer."""
    forms = [schema[form] for form in content.types]
    if content.media == SSE:  # OpenAPI 3.1 has no word for the data of events
        return {SSE: {"schema": {"type": "string"}, "x-data": {"anyOf": forms}}}
    match forms:
        case []:
            return {content.media: {}}
        case [form]:
            return {content.media: {"schema": form}}
        case _:
            return {content.media: {"schema": {"anyOf": forms}}}


def _in_path(endpoint: Endpoint[Any, Any, Any], forms: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Describe the parameters in the path."""
    for name in endpoint.in_path:
        form = dict(forms[name])
        described = {"description": form.pop("description")} if "description" in form else {}
        yield {"name": name, "in": "path", "required": True, **described, "schema": form}


def _in_query(endpoint: Endpoint[Any, Any, Any], forms: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Describe the parameters in the query."""
    for name in endpoint.in_query:
        yield {"name": name, "in": "query", "required": False, "schema": _without_null(forms[name])}


def _without_null(form: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a query parameter without null, because a parameter is left out instead."""
    form = {name: value for name, value in form.items() if (name, value) != ("default", None)}
    if "enum" in form:
        form["enum"] = [value for value in form["enum"] if value is not None]
    if "anyOf" in form:
        (only,) = (choice for choice in form.pop("anyOf") if choice != {"type": "null"})
        form |= only
    return form
