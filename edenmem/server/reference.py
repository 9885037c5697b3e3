"""``/docs``: the endpoints as one page, without scripts or network access."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

router = APIRouter(include_in_schema=False)

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
code, pre { font: 14px/1.4 ui-monospace, monospace; background: #8881; padding: .1em .3em }
table { border-collapse: collapse } td, th { text-align: left; padding: .2em 1em .2em 0 }
section { border-top: 1px solid #8886; margin-top: 1.5rem }
:root { color-scheme: light dark }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """Return the reference of all endpoints as HTML."""
    schema = request.app.openapi()
    body = "".join(_sections(schema))
    content = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>edenmem</title>"
        f"<style>{_STYLE}</style><h1>edenmem {escape(schema['info']['version'])}</h1>"
        "<p>For programs: <a href=openapi.json>openapi.json</a>. Requests need"
        " <code>Authorization: Bearer TOKEN</code>, except from this machine. Errors are RFC 9457"
        f" problem details.</p>{body}</html>"
    )
    return HTMLResponse(content, headers={"Content-Security-Policy": _POLICY})


def _sections(schema: dict[str, Any]) -> Iterator[str]:
    models = schema.get("components", {}).get("schemas", {})
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            yield (
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>"
                f"<p><b>{escape(operation.get('summary', ''))}.</b>"
                f" {escape(operation.get('description', ''))}</p>"
            )
            fields = [*_parameters(operation), *_body(operation, models)]
            if fields:
                yield f"<table><tr><th>name<th>in<th>type<th>{''.join(fields)}</table>"
            yield "</section>"


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    for each in operation.get("parameters", ()):
        yield _row(each["name"], each["in"], each["schema"], each.get("required", False))


def _body(operation: dict[str, Any], models: dict[str, Any]) -> Iterator[str]:
    for content in operation.get("requestBody", {}).get("content", {}).values():
        model = models.get(content["schema"].get("$ref", "").rpartition("/")[2], {})
        for name, field in model.get("properties", {}).items():
            yield _row(name, "body", field, name in model.get("required", ()))


def _row(name: str, place: str, schema: dict[str, Any], required: bool) -> str:
    need = "required" if required else escape(schema.get("description", ""))
    return f"<tr><td><code>{escape(name)}</code><td>{place}<td>{escape(_type(schema))}<td>{need}"


def _type(schema: dict[str, Any]) -> str:
    options = schema.get("anyOf")
    if options:
        return " or ".join(map(_type, options))
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    kind = str(schema.get("type", schema.get("$ref", "").rpartition("/")[2]))
    return f"list of {_type(schema['items'])}" if kind == "array" else kind
