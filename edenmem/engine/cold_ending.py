"""What goes wrong in a cold run: what is one session's trouble, and what ends the run for all."""

from __future__ import annotations

import asyncio

from edenmem.engine.cold_report import ColdFailure, StopKind, Tally
from edenmem.errors import (
    BudgetExceeded,
    ConfigError,
    EdenmemError,
    EmbeddingModelMismatch,
    FactKeyConflict,
    InputError,
    ProviderAnswerInvalid,
    ProviderAuthError,
    ProviderError,
    ProviderMisconfigured,
    SearchIndexUnusable,
    StoreError,
)
from edenmem.models.host import Session


class Ending:
    """Decides when a run ends, and tells ``tally`` why.

    A refused key, a wrong setting, vectors that the platform could not search, an index that facts
    need or a spent budget ends it at once; an outage after ``outage_after`` sessions in a row that
    met it. ``cut`` is set if those in work are not to be waited for.
    """

    def __init__(self, tally: Tally, *, outage_after: int) -> None:
        self.ended = False
        self.cut = asyncio.Event()
        self._tally = tally
        self._outage_after = outage_after
        self._in_a_row: set[str] = set()

    def trouble(self, error: Exception, session: Session, agent_id: str | None) -> None:
        """Tell of an error that a session met; end the run if the others would meet it too."""
        match error:
            case BudgetExceeded():
                # Those in work meet it by themselves; what was paid for before is kept.
                self._tally.stop("budget", error.message, error.hint)
                self.ended = True
            case ProviderAuthError():
                self.end("provider", error.message, error.hint)
            case FactKeyConflict():
                self.end("conflict", error.message, error.hint)
            case SearchIndexUnusable() | EmbeddingModelMismatch(everywhere=True):
                self.end("database", error.message, error.hint)
            case ConfigError() | InputError():
                self.end("configuration", error.message, error.hint)
            case EdenmemError():
                self.fail(session, agent_id, error.message)
                if kind := _outage(error):
                    self._count(kind, error, session)
            case _:
                self.fail(session, agent_id, f"{type(error).__name__}: {error}")

    def fail(self, session: Session, agent_id: str | None, reason: str) -> None:
        """Tell of a failure that counted as no try."""
        self._tally.failed.append(
            ColdFailure(
                session_id=session.id, session=session.label, agent_id=agent_id, reason=reason
            )
        )

    def all_is_well(self) -> None:
        """A session was formed, so there is no outage."""
        self._in_a_row.clear()

    def end(self, kind: StopKind, reason: str, hint: str | None = None) -> None:
        """Begin no more sessions, and wait for those in work no longer than the grace."""
        self._tally.stop(kind, reason, hint)
        self.ended = True
        self.cut.set()

    def _count(self, kind: StopKind, error: EdenmemError, session: Session) -> None:
        self._in_a_row.add(session.id)  # agents of one session are one
        if len(self._in_a_row) >= self._outage_after:
            self.end(kind, error.message, error.hint)


def _outage(error: EdenmemError) -> StopKind | None:
    """What may be down, or wrong, for every session."""
    match error:
        case StoreError():
            return "database"
        case EmbeddingModelMismatch() | ProviderMisconfigured():
            return "configuration"
        case ProviderError(retryable=True) if not isinstance(error, ProviderAnswerInvalid):
            return "provider"
    return None
