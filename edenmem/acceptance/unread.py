"""What was said in a way that the code cannot read: numbers and dates beyond the tables.

A table never has every way of writing. So a number that nobody seems to have given is refused only
where the code understands what was said in its place: a word there that it does not know may be
that number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edenmem.acceptance import dates, numbers, words
from edenmem.acceptance.evidence import Evidence
from edenmem.acceptance.words import Word

#: How far from a number its neighbours are looked for, in words.
_REACH = 3


def is_number_readable(
    evidence: Evidence,
    places: Iterable[int],
    tokens: Sequence[Word],
    start: int,
    end: int,
    languages: Sequence[str],
) -> bool:
    """Whether the code can read what messages say where an item has a number.

    The words beside the number are looked up in the messages. A number there contradicts the
    item's; another word there that the item does not have may be the number.

    Args:
        evidence: What was read.
        places: Where the item comes from.
        tokens: The words of the item.
        start: Where the number begins in the item.
        end: Where it ends.
        languages: The languages that the item may be in.
    """
    left = [word for word in tokens if word.end <= start][-_REACH:][::-1]
    right = [word for word in tokens if word.start >= end][:_REACH]
    own = {key for word in tokens for key in words.keys_of(word.folded)}
    stops = [words.stop_words(language) for language in languages]
    has_unread = False
    for place in places:
        message = evidence.messages[place]
        said = words.words_of(message.text)
        if message.author == "tool" and any(numbers.is_number(word, "") for word in said):
            return True
        if any(numbers.has_hidden_number(word.folded, evidence.language) for word in said):
            has_unread = True
        for beside, step in ((left, 1), (right, -1)):
            anchors = {
                key
                for nearness, word in enumerate(beside)
                if not _is_stop(word, stops) or (nearness == 0 and len(word.folded) > 2)
                for key in words.keys_of(word.folded)
            }
            for at, word in enumerate(said):
                if anchors.isdisjoint(words.keys_of(word.folded)):
                    continue
                for other in said[at + step :: step][:_REACH]:
                    if numbers.is_number(other, evidence.language):
                        return True
                    if not own.isdisjoint(words.keys_of(other.folded)):
                        break
                    if not _is_stop(other, stops):
                        has_unread = True
                        break
    return not (has_unread or evidence.is_foreign)


def _is_stop(word: Word, stops: Sequence[frozenset[str]]) -> bool:
    return any(word.folded in stop for stop in stops)


def is_day_readable(
    evidence: Evidence, places: Iterable[int], tokens: Sequence[Word], day: dates.Said
) -> bool:
    """Whether the code can read what messages say where an item has a day.

    It can if it finds days there. If not, something else may mean one: a word like those of the
    calendar, or a number that the item (of these ``tokens``) does not have. And a day shortly
    before or after a message is what "tomorrow" comes to, in whatever words.
    """
    own = {word.folded for word in tokens}
    has_unread = evidence.is_foreign
    for place in places:
        message = evidence.messages[place]
        if dates.has_movable_feast(message.text):
            return False
        if dates.find_dates(message.text, is_lenient=True):
            return True
        if evidence.meant[place] and not evidence.is_foreign:
            return True
        has_unread = (
            has_unread
            or dates.is_near(day, message.sent_at.date())
            or any(
                word.folded not in own
                and (
                    numbers.is_number(word, evidence.language)
                    or dates.is_like_calendar(word, evidence.language)
                )
                for word in words.words_of(message.text)
            )
        )
    return not has_unread
