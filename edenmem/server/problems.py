"""Errors as answers: RFC 9457 problem details, and the form of OpenAI for ``/v1``."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
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
from edenmem.server.access import AccessDenied

_log = logging.getLogger("edenmem.server")

#: Error → status. The first that fits counts.
_STATUS: tuple[tuple[type[EdenmemError], int], ...] = (
    (StoreReadOnly, 403),
    (NotFoundError, 404),
    (ConflictError, 409),
    (UsageError, 400),
    (ProviderTimeout, 504),
    (ProviderError, 502),
    (UnavailableError, 503),
)

#: What is said of errors whose own words name files, addresses and servers.
_UNSPECIFIC = {
    403: "the store is open for reading only",
    502: "a model could not be asked",
    503: "the store cannot be used now",
    504: "a model did not answer in time",
}

#: Our own kinds of errors in the form of OpenAI.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


class Refused(HTTPException):
    """A request that is answered with this status, detail and these headers."""


def problem(
    scope: Scope,
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[Mapping[str, Any]] = (),
) -> Response:
    """Return the answer for an error, in the form that the path's clients read."""
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


def add_handlers(app: FastAPI) -> None:
    """Let the application answer every error by `problem`."""
    app.add_exception_handler(EdenmemError, answer_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_unexpected)


def status_of(error: EdenmemError) -> int:
    """Return the status by which an error is answered."""
    if isinstance(error, AccessDenied):
        return error.status
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def log_text(error: EdenmemError) -> str:
    """Return an error for the log, without words of a model or its endpoint: those may quote a
    conversation."""
    kind = type(error).__name__
    if isinstance(error, ProviderError):
        return f"{kind}: {error.summary}" if error.summary else kind
    return f"{kind}: {error.message}"


def describe(error: EdenmemError) -> tuple[int, str]:
    """Return the status and the words for an error; what it says of files and addresses is written
    to the log alone."""
    status = status_of(error)
    if isinstance(error, UnavailableError) or status == 500:
        _log.warning("%s", log_text(error))
        _log.debug("%s: %s", type(error).__name__, error.message)
        return status, _UNSPECIFIC.get(status, "the request failed")
    return status, error.message  # hints are for the command line


async def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer for an error of our own."""
    assert isinstance(error, EdenmemError)
    if isinstance(error, AccessDenied):
        detail = error.advised_message
        return problem(request.scope, error.status, detail, headers=error.headers)
    status, detail = describe(error)
    headers = {"Retry-After": "5"} if status == 503 else {}
    return problem(request.scope, status, detail, headers=headers)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    """Say what is wrong where; what was sent is not repeated."""
    assert isinstance(error, RequestValidationError)
    errors = [
        {"at": ".".join(str(part)[:40] for part in each["loc"]), "message": str(each["msg"])}
        for each in error.errors()[:20]
    ]
    detail = "; ".join(f"{each['at']}: {each['message']}" for each in errors[:3])
    detail = detail.encode("utf-8", "replace").decode()
    clean = [
        {key: value.encode("utf-8", "replace").decode() for key, value in each.items()}
        for each in errors
    ]
    return problem(request.scope, 422, detail, errors=clean)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    detail = str(error.detail)
    if error.status_code == 404 and detail == "Not Found":
        detail = "there is no such path"
    return problem(request.scope, error.status_code, detail, headers=error.headers)


async def _answer_unexpected(request: Request, error: Exception) -> Response:
    return problem(request.scope, 500, "the request failed by a defect of the server")
