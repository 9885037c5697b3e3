"""Find memory of others that names the subject, was learned from it, or absorbed its memory.

Read-only; all functions block.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from edenmem.engine.consolidation.propagation import NAME_PART, locate_words, plain, words
from edenmem.engine.erasure.passages import trace_reflections, walk_passages
from edenmem.engine.erasure.reports import Learned, Mention
from edenmem.engine.scopes.overview import word_limit_of
from edenmem.models.forgetting import Passage, Subject, Traces
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.settings.schema import Settings
from edenmem.store.protocol.store import Store
from edenmem.text import one_line

#: Characters to show on either side of a name.
_AROUND = 40
#: Maximum number of places to show per text.
_MOST_SHOWN = 3

_JOINTS = re.compile(r"[\W_]+")
_ID = re.compile(r"\w+")
_NUMBER_BEHIND = re.compile(r"\d+\Z")


class Names:
    """The names of a subject.

    A full name matches in any case. A part of a name ("Anna" of "Anna Lind", "anna_lind" or
    "anna92") matches only with a capital, since many parts are ordinary words; ``whole_only``: no
    part matches. ``lines`` are more names, which match only as a whole line.
    """

    def __init__(
        self, names: Iterable[str], *, whole_only: bool = False, lines: Iterable[str] = ()
    ) -> None:
        whole: dict[tuple[str, ...], None] = {}
        parts: set[str] = set()
        for name in names:
            pieces = [piece for piece in _JOINTS.split(name) if piece]
            for form in (tuple(words(name)), tuple(words(" ".join(pieces)))):
                if len("".join(form)) > 1:
                    whole[form] = None
            for word in () if whole_only else words(" ".join(pieces)):
                stem = _NUMBER_BEHIND.sub("", word)
                if len(stem) >= NAME_PART and not stem[:1].isdigit():
                    parts.add(stem)
        self._lines = {form for line in lines if (form := tuple(words(line))) not in whole}
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        for form in (*whole, *filter(None, self._lines)):
            self._by_first.setdefault(form[0], []).append(form)
        self._parts = frozenset(parts)
        # A text without its longest word does not have a name; the first one is often "the".
        longest = (max(form, key=len) for forms in self._by_first.values() for form in forms)
        self._telling = frozenset((*longest, *parts))

    def __bool__(self) -> bool:
        return bool(self._by_first)

    def are_in(self, text: str) -> bool:
        """Check whether a text contains a name."""
        return bool(self._places(text)[1])

    def contexts(self, text: str) -> tuple[str, ...]:
        """Return the first places of names in a text, as lines with their surroundings."""
        shown, places = self._places(text)
        lines: list[str] = []
        end = -1
        for start, stop in places:
            if start < end:
                continue  # part of the previous line
            begin, end = max(0, start - _AROUND), min(len(shown), stop + _AROUND)
            left, right = "…" if begin else "", "…" if end < len(shown) else ""
            lines.append(f"{left}{one_line(shown[begin:end])}{right}")
        return tuple(lines[:_MOST_SHOWN])

    def _places(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        shown = plain(text)
        folded = shown.casefold()
        if not any(word in folded for word in self._telling):  # most texts have no name
            return shown, []
        placed = locate_words(shown)
        places: list[tuple[int, int]] = []
        for number, (word, start, stop) in enumerate(placed):
            for form in self._by_first.get(word, ()):
                rest = placed[number : number + len(form)]
                if tuple(each for each, _, _ in rest) == form and (
                    form not in self._lines or _is_line(shown, placed, number, number + len(form))
                ):
                    places.append((start, rest[-1][2]))
                    break
            else:
                if word in self._parts and not shown[start].islower():
                    places.append((start, stop))
        return shown, places


def names_of(subject: Subject) -> Names:
    """Return the names of a subject. The texts of facts match only as a whole.

    A text of one ordinary word, such as "Yes.", is in texts that do not repeat it.
    """
    if subject.kind != "fact":
        return Names(subject.names)
    lines = [text for text in subject.texts if len(said := words(text)) == 1 and said[0].isalpha()]
    return Names(
        (name for name in subject.names if name not in lines), whole_only=True, lines=lines
    )


def _is_line(shown: str, placed: Sequence[tuple[str, int, int]], first: int, behind: int) -> bool:
    """Check that the line of these words has no others."""
    before = shown[placed[first - 1][2] if first else 0 : placed[first][1]]
    after = shown[placed[behind - 1][2] : placed[behind][1] if behind < len(placed) else None]
    return (not first or "\n" in before) and (behind == len(placed) or "\n" in after)


def name_concerned(
    subject: Subject, traces: Traces, unreadable: Iterable[Passage]
) -> Iterator[str]:
    """Yield type and ID of the unreadable documents that have an ID or name of the subject."""
    names = names_of(subject)
    ids = {subject.owner or subject.agent_id, *subject.accounts, *traces.own, *traces.shared}
    ids.update((*traces.facts, *traces.messages))
    for passage in unreadable:
        if not ids.isdisjoint(_ID.findall(passage.text)) or names.are_in(passage.text):
            yield f"{passage.target_type} {passage.target_id}"


class MentionSurvey:
    """Scan all stored texts for mentions; ``unreadable`` collects documents without them."""

    def __init__(self, store: Store, settings: Settings, *, of_facts: bool = False) -> None:
        self._store = store
        self._settings = settings
        self._of_facts = of_facts
        self.unreadable: list[Passage] = []

    def mentions(
        self, traces: Traces, names: Names, derived: Iterable[Reflection]
    ) -> list[Mention]:
        """Return memory outside of the traces that names the subject or comes from it."""
        whole = frozenset(traces.scopes)
        gone = {*traces.facts, *traces.held, *(one.id for one in derived)}
        origins = _Origins(self._store, traces)
        found: dict[tuple[str, str], Mention] = {}
        for passage in walk_passages(self._store) if names or origins else ():
            if passage.kind == "unreadable":
                self.unreadable.append(passage)
                continue
            if passage.scope in whole or passage.target_id in gone or passage.kind == "context":
                continue
            contexts = names.contexts(passage.text)
            # The quote of learned memory is no further copy of it.
            if (origins.note(passage) and passage.kind != "doubt") or contexts:
                _note(found, passage, contexts)
        learned = origins.find_learned()
        merged: dict[tuple[str, str], Mention] = {}
        for key, mention in found.items():
            if not mention.contexts and key not in learned:
                continue
            memory = self._memory(mention)
            if memory is not None and memory.session_id in traces.sources:
                continue  # of these sessions, the traces are removed from all scopes
            how = learned.get(key, "")
            mention = msgspec.structs.replace(
                mention, learned=how, mentioned=bool(mention.contexts)
            )
            current = self._current(mention, memory)
            if current is not None and not self._is_settled(current, traces):
                merged[key] = current
        for copy in self._find_propagated(merged, whole, gone):
            merged[copy.key] = copy
        for mention in self._absorbers(traces, derived, merged.values()):
            known = merged.get(mention.key)
            merged[mention.key] = (
                mention
                if known is None
                else msgspec.structs.replace(
                    known, removed=mention.removed, learned=mention.learned
                )
            )
        return sorted(merged.values(), key=lambda one: (one.target_type, str(one.scope), one.key))

    def _find_propagated(
        self, found: Mapping[tuple[str, str], Mention], whole: Collection[Scope], gone: set[str]
    ) -> Iterator[Mention]:
        """Yield reflections derived from learned ones, directly or indirectly."""
        parents = {
            one.target_id: one.learned
            for one in found.values()
            if one.learned and one.target_type == "reflection"
        }
        seen = {*parents, *gone}
        while parents:
            children = self._store.memory.find_derived(list(parents))
            above, parents = parents, {}
            for one in children:
                known = found.get(("reflection", one.id))
                if one.id in seen or one.home in whole:
                    continue
                seen.add(one.id)
                learned = next(above[id] for id in one.propagated_from if id in above)
                parents[one.id] = learned
                mention = Mention(
                    target_type="reflection",
                    target_id=one.id,
                    scope=one.home,
                    text=one.content,
                    contexts=known.contexts if known else (),
                    copies=known.copies if known else 0,
                    learned=learned,
                    mentioned=known is not None,
                )
                yield self._current(mention, one) or mention

    def _memory(self, mention: Mention) -> Fact | Reflection | None:
        """Return the mentioned fact or reflection, if its current text mentions the subject."""
        if mention.text is None or mention.target_type not in ("fact", "reflection"):
            return None
        memory = self._store.memory
        read = memory.fact if mention.target_type == "fact" else memory.reflection
        return read(mention.target_id)

    def _is_settled(self, mention: Mention, traces: Traces) -> bool:
        """Check for the record of a formation that is emptied anyway."""
        if mention.target_type != "formation":
            return False
        formation = self._store.formations.formation(mention.target_id)
        if formation is None:
            return False
        if formation.session_id in traces.own:
            return True
        if formation.session_id not in traces.shared:
            return False
        ids = (*formation.message_ids, *formation.superseded_message_ids)
        return any(
            message.sender in traces.accounts or message.id in traces.messages
            for message in self._store.host.messages(formation.session_id, ids=ids)
        )

    def _current(self, mention: Mention, memory: Fact | Reflection | None) -> Mention | None:
        """Return the mention with the current state of its target, which may be ``memory``."""
        scope, limits = mention.scope, self._settings.formation
        if memory is not None:
            is_fact = isinstance(memory, Fact)
            # No model rewrites the fields of a fact.
            fixed = memory.content != mention.text if isinstance(memory, Fact) else memory.absorbed
            return msgspec.structs.replace(
                mention,
                version=memory.version,
                word_limit=limits.fact_words if is_fact else limits.reflection_words,
                fixed=fixed,
            )
        if mention.target_type == "consolidation" and scope is not None:
            text = self._store.memory.consolidations((scope,)).get(scope)
            if text is not None and mention.text is not None:
                limit = word_limit_of(self._store, self._settings, scope, None, text)
                return msgspec.structs.replace(mention, version=text.version, word_limit=limit)
        elif mention.target_type == "policy" and mention.text is not None:
            return msgspec.structs.replace(mention, fixed=True)
        if not mention.copies:
            return None
        # Nobody needs to decide about old copies of a fact.
        return msgspec.structs.replace(mention, text=None, emptied=self._of_facts)

    def _absorbers(
        self, traces: Traces, derived: Iterable[Reflection], mentions: Iterable[Mention]
    ) -> Iterator[Mention]:
        """Yield texts of other scopes that absorbed removed or learned memory."""
        whole = frozenset(traces.scopes)
        elsewhere = (one for one in trace_reflections(self._store, traces) if one.home not in whole)
        lost: dict[Scope, list[str]] = {}
        goes: set[Scope] = set()
        learned: dict[Scope, set[Learned]] = {}
        for reflection in (*derived, *elsewhere):
            if reflection.absorbed:
                lost.setdefault(reflection.home, []).append(reflection.content)
                goes.add(reflection.home)
        for mention in mentions:
            is_absorbed = mention.target_type == "reflection" and mention.fixed
            if mention.learned and is_absorbed and mention.scope and mention.text:
                lost.setdefault(mention.scope, []).append(mention.text)
                learned.setdefault(mention.scope, set()).add(mention.learned)
        texts = self._store.memory.consolidations(tuple(lost))
        for scope, removed in lost.items():
            text = texts.get(scope)
            if text is not None and text.consolidated_content:
                how = learned.get(scope, set())
                yield Mention(
                    target_type="consolidation",
                    target_id=text.id,
                    scope=scope,
                    text=text.consolidated_content,
                    version=text.version,
                    word_limit=word_limit_of(self._store, self._settings, scope, None, text),
                    removed=tuple(removed),
                    learned="unclear" if "unclear" in how else "alone" if how else "",
                    mentioned=scope in goes,
                )


class _Origins:
    """Find memory learned from a user: by session, source messages, or the users of v1 facts."""

    def __init__(self, store: Store, traces: Traces) -> None:
        self._store = store
        self._accounts = frozenset(traces.accounts)
        self._agent_id = traces.agent_id
        self._own = frozenset(traces.own) if self._accounts else frozenset[str]()
        self._sessions = self._own | (frozenset(traces.shared) if self._accounts else frozenset())
        self._said = frozenset(store.host.find_message_ids(traces.accounts, sorted(self._sessions)))
        self._found: dict[tuple[str, str], Passage] = {}

    def __bool__(self) -> bool:
        return bool(self._accounts)

    def note(self, passage: Passage) -> bool:
        """Record the passage if its target may come from the user, and return whether it does."""
        key = (passage.target_type, passage.target_id)
        if key in self._found:
            return True
        scope = passage.scope
        if scope is None or self._agent_id not in (None, scope.agent_id):
            return False
        if (
            passage.session_id not in self._sessions
            and self._said.isdisjoint(passage.source_message_ids)
            and self._accounts.isdisjoint(passage.related_users)
        ):
            return False
        self._found[key] = passage
        return True

    def find_learned(self) -> dict[tuple[str, str], Learned]:
        """Return the source of each target, without targets from others only."""
        sources = {id for passage in self._found.values() for id in passage.source_message_ids}
        messages = self._store.host.messages_by_ids(sorted(sources))
        authors = {message.id: message.author for message in messages}
        judged = {key: self._judge(passage, authors) for key, passage in self._found.items()}
        return {key: learned for key, learned in judged.items() if learned}

    def _judge(self, passage: Passage, authors: Mapping[str, str]) -> Learned:
        sources = passage.source_message_ids
        people = {author for id in sources if (author := authors.get(id))}
        known = bool(sources) and all(id in authors for id in sources)
        if passage.related_users and not known:
            people.update(passage.related_users)
            if people <= self._accounts:
                return "alone"
        if people - self._accounts:
            return "unclear" if people & self._accounts else ""
        if passage.session_id in self._own:
            return "alone"
        if not all(id in authors for id in sources):
            return "unclear"
        if people:
            return "alone"
        return "" if sources else "unclear"  # "": from the agent only


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
    if contexts and not mention.contexts:
        mention = msgspec.structs.replace(mention, contexts=contexts)
    if passage.kind == passage.target_type and passage.kind != "formation":
        lost = passage.text if mention.text is None else f"{mention.text}\n{passage.text}"
        mention = msgspec.structs.replace(mention, text=lost)
    else:
        mention = msgspec.structs.replace(mention, copies=mention.copies + 1)
    found[key] = mention
