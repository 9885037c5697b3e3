"""Sentences of a text: which of them a person fixed, and where they go back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from edenmem.models.memory import Consolidation, FixedSentence
from edenmem.text import word_count

#: The part of a text's word limit that fixed sentences may fill: a third.
FIXED_SHARE = 3
#: Length in words of a heading.
_HEADING_WORDS = 6

_BULLET = re.compile(r"\s*(?:(?:[-*•–—+]|\d{1,3}[.)])\s+)?")
#: Ends of sentences; three letters before the dot make it no abbreviation.
_SENTENCE_END = re.compile(r"(?<=[^\W\d_]{3}[.!?…؟।])\s+|(?<=[。！？])")
_HEADING = re.compile(r"#{1,6}\s.*|\[[^\[\]]*\]:?|\*\*[^*]+\*\*:?|[^.!?]+:")


def split_bullet(line: str) -> tuple[str, str]:
    """Return the indentation and bullet of a line, and the rest."""
    mark = _BULLET.match(line)
    end = mark.end() if mark else 0
    return line[:end], line[end:].rstrip()


def is_heading(line: str) -> bool:
    """Check whether a line is a heading or has no words."""
    bullet, rest = split_bullet(line)
    words = word_count(line)
    return not words or (
        not bullet.strip() and words <= _HEADING_WORDS and bool(_HEADING.fullmatch(rest))
    )


def sentences_in(line: str) -> list[str]:
    """Return the sentences of a line, without bullet."""
    return [each for each in _SENTENCE_END.split(split_bullet(line)[1]) if word_count(each)]


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text without its headings, in order."""
    lines = (line for line in text.splitlines() if not is_heading(line))
    return [sentence for line in lines for sentence in sentences_in(line)]


def sentence_key(sentence: str) -> str:
    """Return a sentence in the form that is compared: without its final mark and extra spaces."""
    return " ".join(sentence.split()).rstrip(" .!?…;,。！？")


def sentence_keys(sentences: Iterable[str]) -> frozenset[str]:
    """Return the forms of sentences that are compared."""
    return frozenset(map(sentence_key, sentences))


def fix_sentences(
    before: Consolidation | None, text: str, *, by: str, at: datetime, limit: int
) -> tuple[tuple[FixedSentence, ...], tuple[FixedSentence, ...]]:
    """Return the fixed sentences after a person wrote ``text``, and those without room.

    Sentences that the person added or changed become fixed. The oldest are released where they
    fill more than their share of the word limit.
    """
    known = sentence_keys(sentences_of(before.consolidated_content)) if before else frozenset()
    added = {sentence_key(each): each for each in sentences_of(text)}
    new = [FixedSentence(each, by, at) for key, each in added.items() if key not in known]
    fixed = [*keep_fixed(before.fixed if before else (), text), *new]
    room = limit // FIXED_SHARE - sum(word_count(each.text) for each in fixed)
    released = 0
    while room < 0:
        room += word_count(fixed[released].text)
        released += 1
    return tuple(fixed[released:]), tuple(fixed[:released])


def keep_fixed(fixed: Sequence[FixedSentence], text: str) -> tuple[FixedSentence, ...]:
    """Return the fixed sentences that a text has."""
    keys = sentence_keys(sentences_of(text))
    return tuple(each for each in fixed if sentence_key(each.text) in keys)


def put_back(text: str, fixed: Sequence[FixedSentence], old: str) -> tuple[str, tuple[str, ...]]:
    """Return a text with all fixed sentences, and those that it lacked.

    A missing sentence goes under the heading that it has in the old text, else to the end.
    """
    keys = sentence_keys(sentences_of(text))
    missing = tuple(each.text for each in fixed if sentence_key(each.text) not in keys)
    lines = text.splitlines()
    for sentence in missing:
        heading, bullet = _find_place(old, sentence)
        if sentence_key(sentence) not in sentence_keys(sentences_of(bullet + sentence)):
            bullet = "- "  # alone it would read as a heading or a bullet
        at = len(lines)
        if heading in lines:
            start = lines.index(heading) + 1
            at = next((n for n in range(start, at) if is_heading(lines[n])), at)
        lines.insert(at, bullet + sentence)
    return "\n".join(lines), missing


def _find_place(text: str, sentence: str) -> tuple[str, str]:
    """Return the heading above a sentence of a text, and its bullet."""
    heading, key = "", sentence_key(sentence)
    for line in text.splitlines():
        if is_heading(line):
            heading = line if word_count(line) else heading
        elif key in sentence_keys(sentences_in(line)):
            return heading, split_bullet(line)[0]
    return "", "- "
