"""Contexts cached with their sessions."""

# ruff: noqa: D102 - the protocol documents these methods.

from __future__ import annotations

from collections.abc import Iterator

from edenmem.models.forgetting import Passage
from edenmem.models.host import CachedContext
from edenmem.store.sqlite.core.codec import time, to_ms
from edenmem.store.sqlite.core.part import BATCH, Part


class Contexts(Part):
    """See `edenmem.store.protocol.host.Contexts`."""

    def find_context(self, session_id: str, agent_id: str) -> CachedContext | None:
        row = self._fetch_one(
            "SELECT xml, fingerprint, built_at, shown FROM cached_contexts"
            " WHERE session_id = ? AND agent_id = ?",
            (session_id, agent_id),
        )
        if row is None:
            return None
        xml, fingerprint, built_at, shown = row
        return CachedContext(xml=xml, fingerprint=fingerprint, built_at=time(built_at), shown=shown)

    def cache_context(
        self, session_id: str, agent_id: str, context: CachedContext, *, shared: bool = True
    ) -> None:
        with self._db.writing(durable=False) as connection:
            connection.execute(
                "INSERT OR REPLACE INTO cached_contexts"
                " (session_id, agent_id, xml, fingerprint, built_at, shown)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (
                    session_id,
                    agent_id,
                    context.xml,
                    context.fingerprint,
                    to_ms(context.built_at),
                    context.shown,
                ),
            )

    def cached_texts(self) -> Iterator[Passage]:
        last = ("", "")
        while True:
            rows = self._fetch(
                "SELECT c.session_id, c.agent_id, c.xml FROM cached_contexts c"
                " WHERE (c.session_id, c.agent_id) > (?, ?)"
                " ORDER BY c.session_id, c.agent_id LIMIT ?",
                (*last, BATCH),
            )
            for session_id, agent_id, xml in rows:
                yield Passage(
                    kind="context",
                    id=f"{session_id}/{agent_id}",
                    target_type="session",
                    target_id=session_id,
                    text=xml,
                )
            if len(rows) < BATCH:
                return
            last = rows[-1][:2]
