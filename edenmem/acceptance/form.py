"""The form of an item: a statement with a subject, understandable alone, in the model's own words.

The word lists name the main languages. A text in another language passes: what is not certain is
not refused.

An instruction may begin with any verb and a note with any noun, so lists of words never end: rules
that knew more of them left each new labeled set where the one before had stood. How much a text
reads like an instruction, a note or a fragment is estimated by a linear model over its words and
form. Its table has one signed byte for each feature, at the CRC-32 of the feature, and is fitted to
labeled items by ``python -m tests.acceptance.fit``. All sums are whole numbers: the answer is the
same in any process and on any machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from itertools import pairwise
from zlib import crc32

from edenmem.acceptance.evidence import Candidate, Evidence
from edenmem.acceptance.texts import (
    fold,
    is_unspaced,
    is_unstopped,
    lower,
    named_words,
    pattern,
    runs_of_three,
    stem_of,
    without_quotes,
    word_set,
    words_of,
)

_PLACEHOLDER = pattern("form.placeholder")
#: A line that opens or closes data in a prompt.
_FENCE = re.compile(r"<<<(?:end of )?[\w ]+ [0-9a-f]{8,}>>>")
#: The marks of a transcript: "[3] 14:05 anna: …".
_TRANSCRIPT = re.compile(r"\[\d{1,4}\]\s|\[?\d{4}-\d\d-\d\d \d\d:\d\d|\d\d:\d\d [^:\s]{1,30}: ")
_LABEL = re.compile(
    r"(?:facts?|reflections?|note|summary|user|assistant|system|memory|answer|output|scope)"
    r"s?\s?(?:\d{1,3}\s?)?:\s",
    re.IGNORECASE,
)
_DATA = re.compile(r"[{\[<].*[}\]>]\Z|traceback \(most recent call last\)", re.IGNORECASE)
_GREETED = pattern("form.greeted")
#: A greeting or thanks, up to a comma or an exclamation mark.
_HELLO = pattern("form.hello")
_STOCK = pattern("form.stock", re.NOFLAG)
#: Results of tools that state nothing about the world.
_ROUTINE = pattern("form.routine")
_QUESTION = re.compile(r"[?？؟]\W*\Z|\A\W*¿|(?:吗|呢|ですか|ますか|ไหม|หรือเปล่า|습니까|나요)\W*\Z")
#: What an English subject begins with other than a name.
SUBJECT = re.compile(
    r"(?:the|an?|this|these|those|each|every|both|all|\d\S*|\w+ing)\b", re.IGNORECASE
)
_PARTICLE = re.compile(r"de|du|la|le|des|of|the|van|von|der|den|di|da|do|dos|y|e|and|&|al|el")
_GREETINGS = word_set("form.greetings")
_GREETED_WITH = tuple(word for word in _GREETINGS if is_unspaced(word))
#: Length in characters of a greeting with a name, and in words of one with a wish.
_GREETING_CHARACTERS, _GREETING_WORDS = 14, 8
#: Length in words of a line that is like a greeting by chance.
_FEW_WORDS = 3
#: Words with which no sentence ends that lacks its full stop.
_DANGLING = word_set("form.dangling")
_VERB = pattern("form.verb")
_ENGLISH = word_set("form.english")
#: Maximum length in words of a text whose missing name is odd: a longer one may describe.
_NAMELESS_WORDS = 8
_QUOTED_SPEECH = re.compile('["“„«「:]| (?:that|if|no|yes)\\b')
#: Words that stand for the speaker or the reader, in the forms that no other word shares.
_FIRST_PERSON = pattern("form.first_person")
#: Subjects without a meaning of their own.
_PRONOUN = pattern("form.pronoun")
_THE_USER = pattern("form.the_user")
#: What a sentence without its subject begins with.
_NO_SUBJECT = pattern("form.no_subject")


def find_junk(text: str) -> str | None:
    """Return why a text is no statement in any conversation; None if it may be one."""
    if not fold(text):
        return "has no words"
    if has_fence(text):
        return "contains the marks that fence data in the prompt"
    if _PLACEHOLDER.search(text):
        return "is a placeholder"
    words = words_of(text)
    named = {each.folded for each in named_words(text)} - _GREETINGS
    greets = words[0].startswith(_GREETED_WITH) if is_unspaced(text) else words[0] in _GREETINGS
    is_hello = len(fold(text)) <= _GREETING_CHARACTERS or _GREETINGS.issuperset({*words} - named)
    if greets and is_hello:
        return "is a greeting"
    if _GREETED.match(text) and not _QUOTED_SPEECH.search(text):
        return "is a greeting"
    if _STOCK.search(lower(without_quotes(text))):
        return "is a stock phrase of an agent"
    if _DATA.match(text) or _ROUTINE.match(text):
        return "is routine output of a tool"
    if _TRANSCRIPT.match(text):
        return "is a line copied from the transcript; state what it says"
    if label := _LABEL.match(text):
        return f"begins with the label '{label.group().strip()}'; give the statement alone"
    return None


def find_line_junk(line: str) -> str | None:
    """Return why a line of a text is no part of it; None if it may be one, such as two words."""
    if len(words_of(line)) > _FEW_WORDS:
        return find_junk(line)
    return "is a placeholder" if _PLACEHOLDER.search(line) else None


def has_fence(text: str) -> bool:
    """Check whether a text holds a fence of a prompt, real or forged."""
    return _FENCE.search(text) is not None


def find_prompt_words(
    text: str, template_runs: frozenset[str], evidence: Evidence | None = None
) -> str | None:
    """Return why a text repeats a prompt, given by its `runs_of_three`; None if it does not.

    What the messages and the background say too, does not count, nor do runs of words with digits:
    dates and times of an example are those of many facts.
    """
    own = runs_of_three(text)
    hits = own & template_runs
    if hits and evidence is not None:
        hits -= evidence.said_runs
    if len(hits) >= 4 or (hits and len(hits) >= 0.5 * len(own)):
        return "repeats the prompt's own words or example"
    return None


def is_bare(candidate: Candidate, evidence: Evidence) -> bool:
    """Check whether an English text has no verb, or a short text no name of a person or thing."""
    text, words = candidate.content, words_of(candidate.content)
    is_plural = "and" in words[:-1]  # "Anna and Ben live in Porto": a verb without an ending
    is_english = text.isascii() and bool(_ENGLISH.intersection(words))
    if is_english and not is_plural and not _VERB.search(text.partition(" ")[2]):
        return True
    if candidate.scope not in ("user", "agent") or len(words) > _NAMELESS_WORDS:
        return False
    is_uncased = text.upper() == text.lower()  # such scripts do not show their names
    is_named = any(not each.is_first for each in named_words(text))
    if is_uncased or is_named or SUBJECT.match(text) or evidence.names.intersection(words):
        return False
    return not (words and words[0] in evidence.talk.inner_names)  # a friend's, for instance


def name_the_user(content: str, evidence: Evidence) -> str:
    """Return a text with the name of the only person who speaks in place of "the user"."""
    people = evidence.talk.speakers
    if len(people) != 1 or not _THE_USER.search(content) or _write_of_users(evidence):
        return content
    return _THE_USER.sub(lambda match: people[0], content)


def find_fault(candidate: Candidate, evidence: Evidence) -> str | None:
    """Return why a text is not a statement with a subject; None if it is one."""
    text = candidate.content
    bare = without_quotes(text).strip()
    if _QUESTION.search(bare):
        return "is a question; state what was answered, or leave it out"
    if _HELLO.match(bare) and len(words_of(bare)) <= _GREETING_WORDS:
        return "is a greeting"
    names = evidence.names
    if written := _first_person(bare, names):
        return f"says '{written}'; name the person instead"
    if (match := _THE_USER.search(bare)) and not _write_of_users(evidence):
        return f"says '{match.group()}'; give the person's name"
    start = bare.lstrip(" -•*")
    if match := _PRONOUN.match(start):
        is_named = fold(match.group()) in names
        rest = start[match.end() :]
        has_subject = fold(match.group()) in _IMPERSONAL and named_words(rest)
        if not is_named and not has_subject:
            return f"begins with '{match.group()}'; name the person or thing instead"
    if fold(start.partition(" ")[0]) not in names and (match := _NO_SUBJECT.match(start)):
        return f"begins with '{match.group()}' and has no subject; say who or what"
    return _find_fragment(text)


#: Subjects that a named thing may follow: "It is Anna who …", "This book is …".
_IMPERSONAL = frozenset({"it", "its", "this", "these", "those", "on", "er", "sie", "il"})


def _first_person(bare: str, names: frozenset[str]) -> str | None:
    for match in _FIRST_PERSON.finditer(bare):
        written = match.group()
        before = bare[: match.start()].rstrip()
        if written[0].isupper() and written[:2] not in _I and (before or fold(written) in names):
            continue  # a part of a name: "Mein Schiff", "We Work Remotely"
        if written.isupper() and len(written.rstrip("'’")) > 1:
            continue
        return written
    return None


_I = ("I", "I'", "I’")


def speaks_of_users(text: str, evidence: Evidence) -> bool:
    """Check whether a text means any user of a program, of whom people wrote themselves."""
    return bool(_THE_USER.search(text)) and _write_of_users(evidence)


def _write_of_users(evidence: Evidence) -> bool:
    people = (each.text for each in evidence.talk.messages if each.author == "person")
    return any(_THE_USER.search(text) for text in people)


def _find_fragment(text: str) -> str | None:
    words = words_of(text)
    if is_unspaced(text):
        return "is too short to be a statement" if len("".join(words)) < 4 else None
    if text.rstrip().endswith((":", "：", ",", ";")):
        return "ends abruptly; write a whole statement"
    if len(words) < 2:
        return "is a single word; write a whole statement"
    if text[-1].isalpha() and words[-1] in _DANGLING:
        return "ends abruptly; write a whole statement"
    written = re.findall(r"[^\W\d_][\w'’.-]*", text)
    has_case = any(word[0].isupper() or word[0].islower() for word in written)
    named = [word for word in written if not _PARTICLE.fullmatch(word)]
    if len(words) <= 4 and has_case and all(word[0].isupper() for word in named):
        return "is a bare name; state a fact about it"
    return None


# -- statements by likeness ----------------------------------------------------------------------

#: Number of weights, and the units in which they are whole numbers, per unit of log odds.
SIZE, UNITS = 2**15, 40
#: Log odds from which an item is refused, and from which it is in doubt.
REFUSED, DOUBTED = 2.0, 1.0
#: How many first words count by their place, with the lengths of their beginnings and endings; and
#: how many without.
_WORDS, _PARTS, _NEAR_WORDS = 3, (2, 3, 4), 16


def features(text: str, evidence: Evidence) -> Iterator[str]:
    """Yield the features of a text: its words, first of all the first ones, and how it ends.

    All names of people and agents are one word, and so are other words that the conversation has
    with a capital letter. Length and scope do not count: a short statement is a statement.
    """
    words = [_masked(word, evidence) for word in words_of(text)]
    last = "." if is_unstopped(text) else text.rstrip()[-1:]
    yield f"end {'' if last.isalnum() else last}"
    yield f"named {'<name>' in words} {'<other>' in words}"
    kinds = [word if word[:1] == "<" else word[-2:] for word in words[:_WORDS]]
    yield f"kinds {' '.join(kinds[:2])}"
    yield f"kinds {' '.join(kinds)}"
    for place, word in enumerate(words[:_WORDS]):
        yield f"{place} {word}"
        for length in _PARTS:
            yield f"{place} -{word[-length:]}"
            if place == 0:
                yield f"{word[:length]}-"
    near = words[:_NEAR_WORDS]
    yield from near
    yield from map(" ".join, pairwise(near))


def _masked(word: str, evidence: Evidence) -> str:
    if word in evidence.names:
        return "<name>"
    is_name = word in evidence.capitals or (len(word) > 3 and stem_of(word) in evidence.capitals)
    return "<other>" if is_name and not SUBJECT.fullmatch(word) else word


def places_of(text: str, evidence: Evidence) -> set[int]:
    """Return the places of the weights of a text's features in the table."""
    return {crc32(each.encode()) % SIZE for each in features(text, evidence)}


def unlikeness(text: str, evidence: Evidence) -> float:
    """Return the log odds that a text is no statement."""
    table = _table()
    return sum(table[place] for place in places_of(text, evidence)) / UNITS


@cache
def _table() -> memoryview:
    weights = resources.files(__package__).joinpath("likeness.bin").read_bytes()
    return memoryview(weights).cast("b")
