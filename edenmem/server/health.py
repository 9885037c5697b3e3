"""``/health``, ``/ready`` and ``/metrics``."""

from __future__ import annotations

from time import monotonic
from typing import Annotated

from fastapi import APIRouter, Depends, Response
from starlette.responses import JSONResponse

from edenmem import __version__
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.errors import EdenmemError
from edenmem.models.indexes import IndexState
from edenmem.server.access import FromCaller
from edenmem.server.metrics import MEDIA_TYPE
from edenmem.server.state import ServerState, state_of

router = APIRouter(tags=["operation"])

#: Seconds for which an answer is repeated, since anyone may ask.
_INTERVAL = 5.0

FromState = Annotated[ServerState, Depends(state_of)]


@router.get("/health", summary="Whether the process answers")
async def health() -> dict[str, str]:
    """Answer; anyone may ask."""
    return {"status": "ok", "version": __version__}


@router.get("/ready", summary="Whether store, models and indexes can be used")
async def ready(state: FromState) -> Response:
    """Look at the store, the models that are configured, and the indexes; 503 if one is missing.

    Anyone may ask, and is told no more than yes or no.
    """
    if state.readiness is None or monotonic() - state.readiness[0] > _INTERVAL:
        state.readiness = (monotonic(), await in_thread(_look, state))
    parts = state.readiness[1]
    is_ready = "failed" not in parts.values()
    content = {"status": "ready" if is_ready else "not ready", **parts}
    return JSONResponse(content, status_code=200 if is_ready else 503)


def _look(state: ServerState) -> dict[str, str]:
    """The state of each part. No model is asked: that would cost money for each look."""
    parts = {"store": "ok", "model": "ok" if state.service.can_form else "none", "index": "ok"}
    try:
        next(iter(state.service.host.agents()), None)
    except EdenmemError:
        return {**parts, "store": "failed", "index": "unknown"}
    try:
        if any(map(_is_unusable, state.service.indexes.states())):
            parts["index"] = "failed"
    except EdenmemError:
        parts["index"] = "failed"
    return parts


def _is_unusable(index: IndexState) -> bool:
    """Whether searches fail for want of an index."""
    wanted = index.kind != "ordinary" and index.status in ("missing", "failed", "building")
    return wanted and not index.queryable


@router.get("/metrics", summary="Numbers for Prometheus")
async def metrics(caller: FromCaller, state: FromState) -> Response:
    """Return the numbers of this process, in Prometheus' text format."""
    return Response(state.metrics.expose(), media_type=MEDIA_TYPE)
