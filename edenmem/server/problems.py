"""Error answers: RFC 9457 problem details, and the format of OpenAI for ``/v1``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Scope

from edenmem.errors import (
    ConflictError,
    EdenmemError,
    NotFoundError,
    ProviderError,
    ProviderTimeout,
    StoreReadOnly,
    UnavailableError,
    UsageError,
)
from edenmem.invalid import EMPTY, MISSING, OBJECT, TIME
from edenmem.server.access import AccessDenied

_log = logging.getLogger("edenmem.server")

#: Status of each error; the first match counts.
_STATUS: tuple[tuple[type[EdenmemError], int], ...] = (
    (StoreReadOnly, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (UsageError, 400),
    (ProviderTimeout, 504),
    (ProviderError, 502),
    (UnavailableError, 503),
)

#: Details for errors with messages that name files, addresses and servers.
_UNSPECIFIC = {
    403: "the store is read-only",
    502: "the model is unavailable",
    503: "the store is unavailable",
    504: "the model did not answer in time",
}

#: The meaning of each status of REST endpoints, for their reference.
_MEANINGS = {
    400: "The request is invalid.",
    401: "The token is missing or invalid.",
    403: "The token has no permission, or the store is read-only.",
    404: "No such object within reach.",
    408: "The body did not arrive in time.",
    409: "The object exists, or was changed meanwhile.",
    412: "The object has another version; its ETag is the current one.",
    413: "The body is too large.",
    415: "The body is not marked as JSON.",
    422: "A parameter or the content is invalid.",
    428: "If-Match is missing.",
    502: "The model is unavailable.",
    503: "The store is unavailable, the server is stopping, or too many concurrent requests.",
    504: "The request took too long; a change may have been made.",
}

#: Schemas of the errors in the reference.
SCHEMAS: dict[str, dict[str, Any]] = {
    "Problem": {
        "title": "Problem",
        "description": "An error (RFC 9457).",
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "errors": {
                "description": "The place and the problem of each invalid field.",
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"at": {"type": "string"}, "message": {"type": "string"}},
                    "required": ["at", "message"],
                },
            },
        },
        "required": ["type", "title", "status", "detail"],
    },
    "ChatError": {
        "title": "ChatError",
        "description": "An error in the format of OpenAI.",
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
                "required": ["message", "type"],
            }
        },
        "required": ["error"],
    },
}

#: Error types of OpenAI by status.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


class Refused(HTTPException):
    """A refused request, with the status, detail and headers of the answer."""


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of errors for the reference of a route."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {each: {"description": _MEANINGS[each], "content": content} for each in statuses}


#: Description of all errors of ``/v1`` for the reference.
CHAT_ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error of the upstream, unchanged, or of this server.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ChatError"}}},
    }
}


def problem(
    scope: Scope,
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, Any]] = (),
) -> Response:
    """Return the answer for an error, in the format of the path."""
    content: dict[str, Any]
    if scope["path"].startswith("/v1/"):
        kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
        content = {"error": {"message": detail, "type": kind, "param": None, "code": None}}
        return JSONResponse(content, status_code=status, headers=headers)
    title = HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if errors:
        content["errors"] = list(errors)
    return JSONResponse(
        content,
        status_code=status,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type="application/problem+json",
    )


def add_handlers(app: Starlette) -> None:
    """Let the application answer all errors with `problem`."""
    app.add_exception_handler(EdenmemError, answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_unexpected)


def status_of(error: EdenmemError) -> int:
    """Return the status for an error."""
    if isinstance(error, AccessDenied):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def log_text(error: EdenmemError) -> str:
    """Return an error for the log, without text of a model or its endpoint.

    Such text may quote a conversation.
    """
    kind = type(error).__name__
    if isinstance(error, ProviderError):
        return f"{kind}: {error.summary}" if error.summary else kind
    return f"{kind}: {error.message}"


def describe(error: EdenmemError) -> tuple[int, str]:
    """Return the status and the detail for an error.

    Messages that may name files and addresses are written to the log only.
    """
    status = status_of(error)
    if isinstance(error, UnavailableError) or status == 500:
        _log.warning("%s", log_text(error))
        _log.debug("%s: %s", type(error).__name__, error.message)
        return status, _UNSPECIFIC.get(status, "the request failed")
    return status, error.message  # hints are for the command line


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer for an `EdenmemError`."""
    assert isinstance(error, EdenmemError)
    if isinstance(error, AccessDenied):
        detail = error.advised_message
        return problem(request.scope, error.status, detail, headers=error.headers)
    status, detail = describe(error)
    headers = {"Retry-After": "5"} if status == 503 else {}
    return problem(request.scope, status, detail, headers=headers)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Return the invalid fields, without their values."""
    assert isinstance(error, RequestValidationError)
    errors = []
    for each in error.errors()[:20]:
        at, details = _place(each, error.body)
        errors.append({"at": at, "message": explain_invalid(str(each["type"]), details)})
    detail = "; ".join(f"{each['at']} {each['message']}" for each in errors[:3])
    detail = detail.encode("utf-8", "replace").decode()
    clean = [
        {key: value.encode("utf-8", "replace").decode() for key, value in each.items()}
        for each in errors
    ]
    return problem(request.scope, 422, detail, errors=clean)


def _place(error: Mapping[str, Any], document: Any) -> tuple[str, dict[str, Any]]:
    """Return where a request is invalid, and the details of the error.

    Invalid JSON is in the body at a byte; the framework gives the character of the document.
    """
    place, details = error["loc"], dict(error.get("ctx") or {})
    if error["type"] == "json_invalid":
        before = str(document)[: place[-1]]
        place, details["byte"] = place[:-1], len(before.encode("utf-8", "surrogatepass"))
    return ".".join(str(part)[:40] for part in place), details


#: Details of errors that the web framework raises.
_OF_FRAMEWORK = {
    400: "the body cannot be read: it must be JSON in UTF-8",
    404: "no such path",
    405: "this path does not support the method",
}


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail, headers = str(error.detail), error.headers
    if not isinstance(error, Refused):
        detail = _OF_FRAMEWORK.get(error.status_code, detail)
    if error.status_code == 405:
        headers = {"Allow": ", ".join(_methods_of(request))}
    return problem(request.scope, error.status_code, detail, headers=headers)


def _methods_of(request: Request) -> list[str]:
    """Return the methods of a path; the framework names those of its first route only."""
    routes = request.app.router.routes
    return [
        method
        for method in ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes
        )
    ]


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    return problem(request.scope, 500, "internal server error")


#: What is wrong with a value, by the beginning of Pydantic's type of error.
_INVALID = {
    "missing": MISSING,
    "extra_forbidden": "is not a known {what}",
    "json_invalid": "is not valid JSON (at byte {byte})",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": EMPTY,
    "too_long": "must have at most {max_length} values",
    "too_short": EMPTY,
    # All values with a bound are whole numbers.
    "greater_than_equal": "must be a whole number of at least {ge}",
    "less_than_equal": "must be a whole number of at most {le}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_pattern": "must match {pattern}",
    "string": "must be text",
    "int": "must be a whole number",
    "bool": "must be true or false",
    "datetime": TIME,
    "timezone": TIME,
    "value_error": TIME,  # the only check of our own
    "list": "must be a list",
    "model": OBJECT,
    "dict": OBJECT,
}


def explain_invalid(kind: str, details: Mapping[str, Any]) -> str:
    """Explain what is wrong with a value, without the value.

    Args:
        kind: Pydantic's type of the error.
        details: The limits of the value; ``what`` an unknown name was given for ("field").
    """
    known = next((text for start, text in _INVALID.items() if kind.startswith(start)), None)
    return known.format_map({"what": "field", **details}) if known else "is invalid"
