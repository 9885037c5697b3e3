"""Apply the rules to an item and combine their findings into a judgment."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from edenmem.acceptance import orders, secrets, statement
from edenmem.acceptance.conversation import Conversation
from edenmem.acceptance.evidence import Candidate, Evidence, Judgment, Violation, runs_of_three
from edenmem.acceptance.grounding import (
    check_names,
    check_numbers,
    is_date_said,
    is_number_said,
    is_time_said,
)
from edenmem.acceptance.item import MOST_DAYS, Doubt, Item
from edenmem.acceptance.reading import dates, words
from edenmem.acceptance.sources import check_sources
from edenmem.acceptance.tables import word_set
from edenmem.settings.schema import AcceptanceSettings
from edenmem.text import MOST_CHARACTERS


def share_said(item: Item) -> float:
    """Return the share of an item's content words and character pieces that occur in the range."""
    evidence = item.evidence
    known = evidence.talk.segments_of_key
    memory = evidence.memory_keys if item.candidate.kind == "reflection" else frozenset[str]()
    found = total = 0.0
    for word in dict.fromkeys(item.content_words):
        total += 1
        keys = words.keys_of(word)
        found += (
            any(key in known or key in memory or key in evidence.speaker_keys for key in keys)
            or word in evidence.names
            or (len(word) >= 5 and word in evidence.talk.folded)
        )
    for run in item.runs:
        signs, covered = words.coverage(run, lambda piece: piece in known or piece in memory)
        total += signs / 2
        found += covered / 2
    said = sum(is_number_said(item, number) for number in item.figures)
    said += sum(is_date_said(item, date) for date in item.days[:MOST_DAYS])
    said += sum(is_time_said(item, time) for time in item.times)
    # The rule about numbers judges the unsaid ones.
    return (found + said) / (total + said) if total + said else 1.0


def check_echo(item: Item) -> str | None:
    """Check that the text does not repeat the prompt."""
    own = runs_of_three(item.content)
    if not own or not item.evidence.template:
        return None
    flat = re.sub(r"\d+", "0", words.normal(item.content)).split()
    hits = [
        " ".join(flat[at : at + 3]) in item.evidence.template_runs for at in range(len(flat) - 2)
    ]
    longest = run = 0
    for hit in hits:
        run = run + 1 if hit else 0
        longest = max(longest, run)
    if sum(hits) >= 0.5 * len(hits) or longest >= 4:
        return "repeats the prompt's own words or example"
    return None


def check_statement(item: Item) -> str | None:
    """Check that the text is a statement with a subject and understandable alone."""
    if len(item.candidate.content) > MOST_CHARACTERS:
        return f"is longer than {MOST_CHARACTERS} characters"
    if why := _find_junk(item):
        return why
    if statement.has_the_user(item.content) and not item.evidence.talk.is_about_users:
        return "says 'the user'; give the person's name"
    if _is_copy_without_subject(item):
        return "is copied from a message and has no subject; say who or what"
    return statement.find_fault(item.content, item.languages[0], item.evidence.speakers)


def _find_junk(item: Item) -> str | None:
    """Return why a text states nothing; None if it may be a statement."""
    return statement.find_junk(item.content) if item.content else "is empty"


def _is_copy_without_subject(item: Item) -> bool:
    """Return whether the text is copied from a message and lacks a subject."""
    copied = f" {words.normal(item.content)} "
    if not item.tokens or not any(copied in part.normal for part in item.evidence.talk.parts):
        return False
    first, *others = item.tokens
    if item.languages[0] == "de":  # all nouns are capitals: a subject follows its article
        others = others[: 2 if first.folded in word_set("statement.german_articles") else 1]
    if any(word.written[0].isupper() for word in others) or first.folded in word_set(
        "statement.articles"
    ):
        return False
    if any(first.folded in words.stop_words(language) for language in item.languages):
        return True
    if item.languages[0] not in word_set("statement.subject_in_verb") or len(item.tokens) > 4:
        return False
    keys = set(words.keys_of(first.folded))
    said = sum(
        any(not keys.isdisjoint(words.keys_of(word.folded)) for word in words.words_of(text))
        for text in (
            *(part.normal for part in item.evidence.talk.parts),
            *item.evidence.context,
        )
    )
    return said < 2 and first.folded not in item.evidence.speakers


def check_relative_dates(item: Item) -> str | None:
    """Check that the text has no date that depends on the day of the message."""
    if found := dates.find_relative(item.bare, dict.fromkeys((*item.languages, "en"))):
        return f"says '{found}'; give the date instead"
    if not item.days and (name := dates.find_lone_weekday(item.bare)):
        return f"says '{name}' without its date; give the date"
    return None


def check_secrets(item: Item) -> str | None:
    """Check that the text has no key, password, card number or account number."""
    if kind := secrets.find_secret(item.content):
        return f"contains {kind}, which must not be remembered"
    flat = secrets.flatten(item.content)
    if any(value in flat for value in item.evidence.talk.secrets):
        return "contains what a message calls a password or code, which must not be remembered"
    return None


def check_orders(item: Item) -> str | None:
    """Check that shared memory does not instruct the agent."""
    if item.candidate.takes_orders:
        return None
    return orders.find_order(
        item.bare,
        item.evidence.agents,
        item.evidence.speakers,
        item.languages[0],
        is_shared=item.candidate.is_shared,
    )


def object_to(content: str, *, is_shared: bool = True, takes_orders: bool = False) -> str | None:
    """Return why a text must not be remembered; None if it may.

    For texts without a conversation. The arguments are those of `Candidate`.
    """
    candidate = Candidate(content=content, is_shared=is_shared, takes_orders=takes_orders)
    item = Item(candidate=candidate, evidence=Evidence(talk=Conversation()), content=content)
    return next(filter(None, (check(item) for check in _WITHOUT_EVIDENCE)), None)


#: The rules that need no conversation.
_WITHOUT_EVIDENCE = (_find_junk, check_secrets, check_orders)


#: Factor for the lower limit of the rule about words in scripts without spaces.
_OF_CHARACTERS = 0.6

#: All rules except those about sources and words, which return more than a reason.
_RULES: dict[str, Callable[[Item], str | Doubt | None]] = {
    "names": check_names,
    "numbers": check_numbers,
    "echo": check_echo,
    "statement": check_statement,
    "relative_dates": check_relative_dates,
    "secrets": check_secrets,
    "orders": check_orders,
}


def judge(
    candidate: Candidate,
    evidence: Evidence,
    settings: AcceptanceSettings,
    *,
    is_last: bool = False,
) -> Judgment:
    """Check an item against the messages. Pure: the same input gives the same judgment.

    Args:
        candidate: The item as the model wrote it.
        evidence: What the model was shown. Use one value for all items of a range: derived values
            are cached on it.
        settings: Enabled rules, and the limits of the rule about words.
        is_last: Whether the item was sent back before. Doubts, and a share between the two limits
            of the rule about words, are then accepted as weak instead of being violations.
    """
    is_on = msgspec.structs.asdict(settings)
    content = candidate.content
    if is_on["statement"] and evidence.user and not evidence.talk.is_about_users:
        content = statement.name_the_user(content, evidence.user)
    if len(content) > MOST_CHARACTERS:  # only judged text is kept
        content = content[: MOST_CHARACTERS - 1] + "…"
    item = Item(
        candidate=candidate,
        evidence=evidence,
        content=content,
        sources=candidate.sources,
    )
    violations: list[Violation] = []
    is_weak = False
    sources = candidate.sources
    if is_on["sources"] and candidate.kind == "fact":
        sources, reason = check_sources(item)
        item.sources = sources
        if isinstance(reason, Doubt):
            is_weak = is_last
            reason = None if is_last else reason.reason
        if reason:
            violations.append(Violation("sources", reason))
    for name, check in _RULES.items():
        found = check(item) if is_on[name] else None
        if isinstance(found, Doubt):
            is_weak = is_weak or is_last
            found = None if is_last else found.reason
        if found:
            violations.append(Violation(name, found))
    if is_on["words"]:
        share = share_said(item)
        # A reflection on a whole conversation may use other words, and characters of a script
        # without spaces match less often than words.
        reject = settings.words_reject * (1.0 if item.is_spaced else _OF_CHARACTERS)
        reject = reject if candidate.kind == "fact" else 0.0
        is_between = reject <= share < settings.words_floor
        is_weak = is_weak or (is_last and is_between)
        if share < settings.words_floor and not (is_last and is_between):
            violations.append(
                Violation(
                    "words", f"has {1 - share:.0%} of its words from outside the conversation"
                )
            )
    if candidate.said:  # a name must not hide what the model's wording breaks
        own = msgspec.structs.replace(candidate, content=candidate.said, said="")
        wording = judge(own, evidence, settings, is_last=is_last)
        broken = {"statement", *(each.rule for each in violations)}
        violations += [each for each in wording.violations if each.rule not in broken]
        is_weak = is_weak or wording.is_weak
    return Judgment(
        content=content,
        sources=tuple(sources),
        violations=tuple(violations),
        is_weak=is_weak and not violations,
    )
