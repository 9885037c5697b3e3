"""Whom an item is about, and whom the words that it comes from are about."""

from __future__ import annotations

import re
from collections.abc import Iterable

from edenmem.acceptance import words
from edenmem.acceptance.item import Item

_CLAUSE = re.compile(r"[.,:;!?…](?=\s|\Z)|[。、，；！？：؟،\n]|\s[-–—]\s")
_TITLES = words.word_set("dr mr mrs ms miss sir frau herr dona don mevrouw meneer madame monsieur")
#: Words by which the writer of a message speaks of themselves, by language.
_SELVES = {
    "en": "i|i['’](?:m|ve|d|ll)|me|my|mine|myself",
    "de": "ich|mir|mich|mein(?:e|en|em|er|es)?",
    "fr": "je|moi|mon|ma|mes|j['’]\\w+",
    "es": "yo|mi|mis|me|conmigo",
    "it": "io|mio|mia|miei|mie",
    "pt": "eu|meu|minha|meus|minhas|comigo",
    "nl": "ik|mij|mijn",
    "pl": "ja|mój|moja|moje|moją|mnie",
    "sv": "jag|mig|min|mina|mitt",
    "ru": "я|мне|меня|мной|мой|моя|моё|мои|моей|моего",
    "uk": "я|мені|мене|мій|моя|моє|мої",
    "tr": "ben|benim|bana|beni",
    "ar": "أنا",
    "hi": "मैं|मैंने|मुझे|मेरा|मेरी|मेरे",
}
_SELF = {
    language: re.compile(rf"(?<![\w'’-])(?:{own})(?![\w\u0900-\u0903\u093a-\u094f-])", re.I)
    for language, own in _SELVES.items()
}
_SELF_UNSPACED = re.compile("(?<!自)我(?![国们])|私(?!たち)|僕(?!たち|ら)|俺(?!たち|ら)")


def find_other_person(item: Item, places: Iterable[int]) -> str | None:
    """The person whom an item's sources are about, where the item is about others; else None.

    The clauses that hold most of the item decide: they are about the people whom they name, and
    about their writer if the writer says "I". A clause that tells neither decides nothing.
    """
    people = _parts_of_names(item)
    subjects = _named(item.content, people)
    if len(people) < 2 or not subjects:
        return None
    own = {part for parts in people.values() for part in parts}
    wanted = {key for word in set(item.content_words) - own for key in words.keys_of(word)}
    pieces = {piece for piece in item.pieces if not any(part in piece for part in own)}
    best, referred = 0, list[set[str]]()
    for place in places:
        message = item.evidence.messages[place]
        for clause in _CLAUSE.split(message.text):
            keys = {key for word in words.words_of(clause) for key in words.keys_of(word.folded)}
            runs = words.runs_of(clause)
            score = len(wanted & keys) + sum(any(one in run for run in runs) for one in pieces)
            if score < max(best, 1):
                continue
            referred = referred if score == best else []
            best = score
            about = _named(clause, people)
            own_words = _SELF.get(item.evidence.language, _SELF_UNSPACED)
            if message.author == "person" and own_words.search(clause):
                about.add(message.speaker)
            referred.append(about)
    if not referred or any(not about or about & subjects for about in referred):
        return None
    return min(referred[0])


def _parts_of_names(item: Item) -> dict[str, set[str]]:
    """For each person who writes, the parts of the name that no other person shares."""
    found: dict[str, set[str]] = {}
    for message in item.evidence.messages:
        if message.author == "person":
            name = message.speaker
            parts = {word.folded for word in words.words_of(name)} - _TITLES
            parts |= {
                run[at] for run in words.runs_of(name) for at in (slice(None, 2), slice(-2, None))
            }
            found[name] = {part for part in parts if len(part) > 1}
    return {
        name: parts.difference(*(other for one, other in found.items() if one != name))
        for name, parts in found.items()
    }


def _named(text: str, people: dict[str, set[str]]) -> set[str]:
    """The people whom a text names."""
    keys = {key for word in words.words_of(text) for key in words.keys_of(word.folded)}
    runs = words.runs_of(text)
    return {
        name
        for name, parts in people.items()
        if any(
            not keys.isdisjoint(words.keys_of(part)) or any(part in run for run in runs)
            for part in parts
        )
    }
