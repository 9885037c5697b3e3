"""What of others' memory names the subject of a forgetting, or absorbed something of it.

Everything here reads and blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from edenmem.engine.forgetting_reports import Mention
from edenmem.engine.mentions import Names
from edenmem.engine.overview import word_limit_of
from edenmem.models.forgetting import Passage, Traces
from edenmem.models.memory import Reflection
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol import Store


class MentionSurvey:
    """Looks through every text that is stored."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._settings = settings

    def mentions(
        self, traces: Traces, names: Names, derived: Iterable[Reflection]
    ) -> list[Mention]:
        """What names the subject, or absorbed something of it, outside of its traces."""
        whole = frozenset(traces.scopes)
        gone = {one.id for one in derived}
        by_source = frozenset(traces.sources)
        found: dict[tuple[str, str], Mention] = {}
        for passage in self._store.passages() if names else ():
            if passage.scope in whole or passage.target_id in gone:
                continue
            contexts = names.contexts(passage.text)
            if contexts and passage.place != "context":
                _note(found, passage, contexts)
        mentions = [self._current(mention) for mention in found.values()]
        kept = [
            mention
            for mention in mentions
            if mention is not None
            and not self._goes_anyway(mention, by_source)
            and not self._is_settled(mention, traces)
        ]
        merged = {mention.key: mention for mention in kept}
        for mention in self._absorbers(traces, derived):
            known = merged.get(mention.key)
            merged[mention.key] = (
                mention
                if known is None
                else msgspec.structs.replace(known, removed=mention.removed)
            )
        return sorted(merged.values(), key=lambda one: (one.target_type, str(one.scope), one.key))

    def _goes_anyway(self, mention: Mention, sources: frozenset[str]) -> bool:
        """Whether it comes from a session whose traces go out of every scope."""
        if not sources or mention.text is None:
            return False
        if mention.target_type == "fact":
            fact = self._store.fact(mention.target_id)
            return fact is not None and fact.session_id in sources
        if mention.target_type == "reflection":
            reflection = self._store.reflection(mention.target_id)
            return reflection is not None and reflection.session_id in sources
        return False

    def _is_settled(self, mention: Mention, traces: Traces) -> bool:
        """Whether it is the record of a formation that is emptied in any case."""
        if mention.target_type != "formation":
            return False
        formation = self._store.formation(mention.target_id)
        if formation is None:
            return False
        if formation.session_id in traces.own:
            return True
        if formation.session_id not in traces.shared:
            return False
        said = self._store.messages(formation.session_id, ids=formation.message_ids)
        return any(message.sender in traces.accounts for message in said)

    def _current(self, mention: Mention) -> Mention | None:
        """The mention with what its target says and may be changed by now."""
        scope = mention.scope
        if mention.target_type == "fact":
            fact = self._store.fact(mention.target_id)
            if fact is not None and mention.text is not None:
                limit = self._settings.formation.fact_words
                return msgspec.structs.replace(mention, version=fact.version, word_limit=limit)
        elif mention.target_type == "reflection":
            reflection = self._store.reflection(mention.target_id)
            if reflection is not None and mention.text is not None:
                return msgspec.structs.replace(
                    mention,
                    version=reflection.version,
                    word_limit=self._settings.formation.reflection_words,
                    fixed=reflection.absorbed,
                )
        elif mention.target_type == "consolidation" and scope is not None:
            text = self._store.consolidations((scope,)).get(scope)
            if text is not None and mention.text is not None:
                limit = word_limit_of(self._settings, scope, None)
                return msgspec.structs.replace(mention, version=text.version, word_limit=limit)
        elif mention.target_type == "policy" and mention.text is not None:
            return msgspec.structs.replace(mention, fixed=True)
        return msgspec.structs.replace(mention, text=None) if mention.copies else None

    def _absorbers(self, traces: Traces, derived: Iterable[Reflection]) -> Iterator[Mention]:
        """The texts of other scopes that absorbed what goes."""
        whole = frozenset(traces.scopes)
        elsewhere = (one for one in self._store.trace_reflections(traces) if one.home not in whole)
        said: dict[Scope, list[str]] = {}
        for reflection in (*derived, *elsewhere):
            if reflection.absorbed:
                said.setdefault(reflection.home, []).append(reflection.content)
        texts = self._store.consolidations(tuple(said))
        for scope, removed in said.items():
            text = texts.get(scope)
            if text is not None and text.consolidated_content:
                yield Mention(
                    target_type="consolidation",
                    target_id=text.id,
                    scope=scope,
                    text=text.consolidated_content,
                    version=text.version,
                    word_limit=word_limit_of(self._settings, scope, None),
                    removed=tuple(removed),
                )


def _note(
    found: dict[tuple[str, str], Mention], passage: Passage, contexts: tuple[str, ...]
) -> None:
    key = (passage.target_type, passage.target_id)
    mention = found.get(key) or Mention(
        target_type=passage.target_type,
        target_id=passage.target_id,
        scope=passage.scope,
        contexts=contexts,
    )
    if passage.place == passage.target_type and passage.place != "formation":
        said = passage.text if mention.text is None else f"{mention.text}\n{passage.text}"
        mention = msgspec.structs.replace(mention, text=said, contexts=contexts)
    else:
        mention = msgspec.structs.replace(mention, copies=mention.copies + 1)
    found[key] = mention
