"""Checks of REST requests that the web framework does not make."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from edenmem.server.problems import Refused


async def _check(request: Request) -> None:
    """Check the names of the query's parameters, and the type of the body.

    Raises:
        RequestValidationError: the route does not have such a parameter.
        Refused: the body is not marked as JSON (415).
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {field.alias for field in route.dependant.query_params}
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError([_unknown(name) for name in unknown])
    # Forms of other sites can send a body, but not with this type.
    if route.body_field is not None and not _is_json(request) and await request.body():
        raise Refused(415, "send Content-Type: application/json")


def _unknown(name: str) -> dict[str, Any]:
    return {"type": "extra_forbidden", "loc": ("query", name), "ctx": {"what": "parameter"}}


def _is_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


#: Dependencies of each router of REST endpoints.
STRICT = (Depends(_check),)
