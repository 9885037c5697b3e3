"""``/health``, ``/ready`` and ``/metrics``."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from starlette.responses import JSONResponse, PlainTextResponse

from edenmem import __version__
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import EdenmemError
from edenmem.server.access import FromCaller
from edenmem.server.problems import describe, problem_responses
from edenmem.server.state import MEDIA_TYPE, ServerState, state_of

router = APIRouter(tags=["operation"])

#: Seconds for which an answer is cached: this endpoint needs no token.
_INTERVAL = 5.0

FromState = Annotated[ServerState, Depends(state_of)]


@router.get("/health", summary="Check that the process runs")
async def health() -> dict[str, str]:
    """Report that the process runs. Needs no token."""
    return {"status": "ok", "version": __version__}


@router.get(
    "/ready",
    summary="Check store, models and indexes",
    response_model=dict[str, str],
    responses={
        **problem_responses(504),
        503: {**problem_responses(503)[503], "model": dict[str, str]},
    },
)
async def ready(state: FromState) -> Response:
    """Report the state of store, models and indexes; 503 if one is not ready. Needs no token."""
    if state.readiness is None or monotonic() - state.readiness[0] > _INTERVAL:
        state.readiness = (monotonic(), await in_thread(_look, state))
    parts = state.readiness[1]
    is_ready = "failed" not in parts.values()
    content = {"status": "ready" if is_ready else "not ready", **parts}
    return JSONResponse(content, status_code=200 if is_ready else 503)


def _look(state: ServerState) -> dict[str, str]:
    """Return the state of each part, without a paid request to a model."""
    parts = {"store": "ok", "model": "ok" if state.service.can_form else "none", "index": "ok"}
    try:
        next(iter(state.service.host.agents()), None)
    except EdenmemError as error:
        describe(error)  # to the log
        return {**parts, "store": "failed", "index": "unknown"}
    try:
        for index in state.service.indexes.states():
            is_wanted = index.kind != "ordinary" and not index.queryable
            if is_wanted and index.status in ("missing", "failed", "building"):
                parts["index"] = "failed"  # searches fail
    except EdenmemError:
        parts["index"] = "failed"
    return parts


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses=problem_responses(401, 403),
)
async def metrics(caller: FromCaller, state: FromState) -> Response:
    """Return the metrics in the text format of Prometheus.

    They are of this process, except for what waits for review."""
    with suppress(EdenmemError):  # the others matter most during an outage
        state.metrics.note_held(await in_thread(state.service.store.memory.count_held))
    return Response(state.metrics.expose(), media_type=MEDIA_TYPE)
