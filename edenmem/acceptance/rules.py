"""Judge an item: what is certainly wrong with it, and what is in doubt."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from edenmem.acceptance import form, orders, secrets
from edenmem.acceptance.doubts import find_doubts
from edenmem.acceptance.evidence import Candidate, Evidence, Finding, Judgment
from edenmem.acceptance.texts import contains, fold, words_of

#: Length in words of a label in a text.
_LABEL = 2
#: A person's message so close after an agent's words may confirm them.
_CONFIRMS_WITHIN = 2
_UNLIKE = "reads like an instruction, a note or a fragment; write a whole statement"


def judge(candidate: Candidate, evidence: Evidence) -> Judgment:
    """Check an item against the messages. Pure: the same input gives the same judgment."""
    content = form.name_the_user(candidate.content, evidence)
    candidate = msgspec.structs.replace(candidate, content=content)
    agents, people = evidence.agents, evidence.talk.speakers
    order = None if candidate.takes_orders else orders.find_order(content, agents, people)
    violations = [
        Finding(rule, reason)
        for rule, reason in (
            ("statement", form.find_junk(content)),
            ("echo", form.find_prompt_words(content, evidence.template_runs, evidence)),
            ("secrets", _find_secret(candidate, evidence)),
            ("orders", order),
        )
        if reason
    ]
    if not violations and (fault := form.find_fault(candidate, evidence)):
        violations.append(Finding("statement", fault))
    is_note = candidate.kind == "reflection" and candidate.scope == "session"
    is_exempt = is_note or candidate.takes_orders or form.speaks_of_users(content, evidence)
    odds = 0.0 if violations or is_exempt else form.unlikeness(content, evidence)
    if odds >= form.REFUSED:
        violations.append(Finding("statement", _UNLIKE))
    sources, refusal, doubts = _check_sources(candidate, evidence)
    if refusal:
        violations.append(refusal)
    judgment = Judgment(content=content, sources=sources, quote=candidate.quote)
    if violations:
        return msgspec.structs.replace(judgment, violations=tuple(violations))
    if odds >= form.DOUBTED or (not is_exempt and form.is_bare(candidate, evidence)):
        doubts.append(Finding("statement", _UNLIKE))
    candidate = msgspec.structs.replace(candidate, sources=sources)
    if candidate.scope == "agent" and (name := find_user_named(content, evidence)):
        doubts.append(Finding("privacy", f"names '{name}' in memory that every user reads"))
    return msgspec.structs.replace(judgment, doubts=(*doubts, *find_doubts(candidate, evidence)))


def accept(candidate: Candidate) -> Judgment:
    """Judge an item with the rules switched off: only an empty text or a fence is refused."""
    content = candidate.content
    junk = None if content.strip() and not form.has_fence(content) else form.find_junk(content)
    violations = (Finding("statement", junk),) if junk else ()
    return Judgment(
        content=content, sources=candidate.sources, quote=candidate.quote, violations=violations
    )


def object_to(content: str, *, takes_orders: bool = False, is_statement: bool = True) -> str | None:
    """Return why a text must not be remembered in any conversation; None if it may.

    A text that is no statement, such as an item of a program, may be a greeting or a placeholder.
    """
    order = None if takes_orders else orders.find_order(content, (), ())
    if secret := secrets.find_secret(content):
        return f"contains {secret}, which must not be remembered"
    return (form.find_junk(content) if is_statement else None) or order


def object_to_line(
    line: str, *, agents: Iterable[str] = (), takes_orders: bool = False
) -> str | None:
    """Return why a line of a text must not be remembered; None if it may.

    A label before a colon, which a statement alone may not have, is judged apart from the rest.
    """
    if secret := secrets.find_secret(line):
        return f"contains {secret}, which must not be remembered"
    label, _, rest = line.partition(": ")
    body = rest if rest and len(words_of(label)) <= _LABEL else line
    for text in () if takes_orders else dict.fromkeys((line, body)):
        if order := orders.find_order(text, agents, ()):
            return order
    return form.find_line_junk(body)


def find_user_named(text: str, evidence: Evidence) -> str | None:
    """Return the user of the session whom a text names, also with an ending; None without one."""
    folded = fold(text)
    words = folded.split()
    for user in evidence.users:
        parts = [fold(user), *(word for word in words_of(user) if len(word) > 2)]
        if any(part and contains(folded, part) for part in parts):
            return user
        longer = tuple(part for part in parts if len(part) >= (4 if part.isascii() else 2))
        if longer and any(word.startswith(longer) for word in words):
            return user
    return None


def _find_secret(candidate: Candidate, evidence: Evidence) -> str | None:
    for text in (candidate.content, candidate.quote):
        if kind := secrets.find_secret(text):
            return f"contains {kind}, which must not be remembered"
    held = candidate.content.casefold()
    if any(value in held for value in evidence.talk.secrets):
        return "contains what a message calls a password or code, which must not be remembered"
    return None


def _check_sources(
    candidate: Candidate, evidence: Evidence
) -> tuple[tuple[int, ...], Finding | None, list[Finding]]:
    """Return the supporting messages, why there are none, and doubts about them."""
    talk = evidence.talk
    known = tuple(number for number in candidate.sources if number in talk.by_number)
    doubts: list[Finding] = []
    sources = known
    if candidate.kind == "fact":
        located = talk.locate(candidate.quote, known)
        sources = located or known
        if not located:
            reason = "the quote is not in the messages" if candidate.quote else "has no quote"
            doubts.append(Finding("quote", reason))
        if not sources:
            return (), Finding("sources", "cites no message of the conversation"), []
        if candidate.sources and not known:
            doubts.append(Finding("sources", "cites messages that do not exist"))
    elif not known:
        return (), None, []  # about the whole range
    authors = {talk.by_number[number].author for number in sources}
    if "person" in authors:
        return sources, None, doubts
    last = max(sources)
    after = range(last + 1, last + 1 + _CONFIRMS_WITHIN)
    answered = any(at in talk.by_number and talk.by_number[at].author == "person" for at in after)
    if answered:
        doubts.append(
            Finding("sources", "only an agent or a tool said so; a person's reply follows")
        )
        return sources, None, doubts
    if "tool" in authors:
        if candidate.kind == "fact":
            doubts.append(Finding("sources", "only a tool said so"))
        return sources, None, doubts
    return sources, Finding("sources", "only an agent said so, and no person confirmed it"), []
