"""The API's reference: every route of `smartmig serve`, from the description it serves itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi.openapi.utils import get_openapi

from smartmig.web.app import create_app


class Nobody:
    """Stands where a running loop would: routes are described here, never called."""

    def __getattr__(self, name: str) -> Nobody:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nobody()


def description() -> dict[str, Any]:
    needed = [one for one in inspect.signature(create_app).parameters.values() if one.default is one.empty]
    app = create_app(*(Nobody() for _ in needed))  # type: ignore[arg-type]
    return get_openapi(title=app.title, version=app.version, routes=app.routes)


def page() -> Iterator[str]:
    told = description()
    schemas = told["components"]["schemas"]
    yield "# API"
    yield ""
    yield "What `smartmig serve` answers. A token goes into the header `Authorization: Bearer ...`; `/health` needs"
    yield "none."
    yield "Routes that change something need an operator's token and leave an audit record. The same description as"
    yield "OpenAPI is at `/openapi.json` of a running server; [live](../live.md) says what the routes are for."
    for path, methods in told["paths"].items():
        for method, route in methods.items():
            yield ""
            yield f"## {method.upper()} {path}"
            yield ""
            yield from (route.get("description") or route.get("summary", "")).splitlines()
            yield from _asked(route)
            yield from _answered(route)
    yield ""
    yield "## Objects"
    for name, schema in schemas.items():
        if name.endswith("ValidationError"):
            continue
        yield ""
        yield f"### {name}"
        yield ""
        yield from (schema.get("description") or "").splitlines()
        yield from _fields(schema)


def _asked(route: Mapping[str, Any]) -> Iterator[str]:
    parameters = route.get("parameters", [])
    if parameters:
        yield ""
        yield "| parameter | where | type | meaning |"
        yield "|---|---|---|---|"
        for one in parameters:
            yield f"| `{one['name']}` | {one['in']} | {_kind(one['schema'])} | {one.get('description', '')} |"
    body = route.get("requestBody")
    if body:
        yield ""
        yield f"Body: {_content(body)}."


def _answered(route: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    yield "| answer | with |"
    yield "|---|---|"
    for code, answer in route["responses"].items():
        content = _content(answer)
        said = answer["description"]
        yield f"| {code} | {content if content and code.startswith('2') else said} |"


def _content(holder: Mapping[str, Any]) -> str:
    return ", ".join(
        _kind(one["schema"]) if one.get("schema") else f"`{media}`" for media, one in holder.get("content", {}).items()
    )


def _fields(schema: Mapping[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield ""
        yield "One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + "."
    properties = schema.get("properties", {})
    if properties:
        yield ""
        yield "| field | type | meaning |"
        yield "|---|---|---|"
        for name, field in properties.items():
            needed = "" if name in schema.get("required", ()) else " (optional)"
            yield f"| `{name}` | {_kind(field)}{needed} | {' '.join(field.get('description', '').split())} |"


def _kind(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
