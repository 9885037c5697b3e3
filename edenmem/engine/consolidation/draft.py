"""Build the prompt for a scope's text, check the model's draft, and keep fixed sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from edenmem.acceptance.doubts import Source
from edenmem.acceptance.form import find_prompt_words, has_fence
from edenmem.acceptance.rules import object_to_line
from edenmem.acceptance.secrets import find_secret
from edenmem.acceptance.texts import runs_of_three
from edenmem.engine.runtime.llm_session import render_own_words
from edenmem.errors import EdenmemError
from edenmem.models.formation import Decision
from edenmem.models.memory import Consolidation, FixedSentence, Reflection
from edenmem.models.scope import ScopeKind
from edenmem.text import clean, one_line, word_count

#: A text of at least this many words is not replaced by one with less than this share of them,
#: or of its limit: that is an apology or "no changes", not a memory.
APOLOGY_FROM_WORDS = 50
APOLOGY_SHARE = 0.1
#: A text of at least this many words should not lose more than a third of them.
LOSS_FROM_WORDS = 20
LOSS_SHARE = 3

#: The platform's texts begin with a version line, which models copy. Possessive quantifiers keep
#: the time linear for endlessly repeated marks.
_VERSION_FIRST = re.compile(
    r"\A(?:[\s*_#`>-]*+version[\s*_]*+(?:[:=#][\s*_]*+)?v?\d++[\s*_.]*(?:\n|\Z))+", re.I
)
_VERSION_LINE = re.compile(r"^[ \t]*VERSION:[ \t]*\d+[ \t]*(?:\n|\Z)", re.M)
#: A bold label, which is a heading within a line.
_LABEL = re.compile(r"\A\*\*[^*]{1,40}\*\*:?\s*")
_CODE_BLOCK = re.compile(r"\A```[a-z]*\n(.*)\n```\Z", re.S)


class DraftRefused(EdenmemError):
    """A rejected draft of a model."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a draft.

    ``owner`` is the name of the scope's owner, ``known`` the texts of the same user's other
    accounts, and ``fixed`` the sentences of people.
    """

    kind: ScopeKind
    owner: str
    current: str
    known: tuple[str, ...] = ()
    reflections: tuple[Reflection, ...]
    instructions: str | None
    word_limit: int
    now: datetime
    agent: str = ""
    persona: str = ""
    fixed: tuple[FixedSentence, ...] = ()
    takes_orders: bool = False


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A checked text, the sentences that the check dropped, and fixed ones that it put back."""

    text: str
    dropped: tuple[Decision, ...] = ()
    restored: tuple[str, ...] = ()
    taken: tuple[Reflection, ...] = ()


def prompt_values(assignment: Assignment, lost: Sequence[str] = ()) -> dict[str, object]:
    """Return the variables of the prompt for the whole new text.

    ``lost`` are the sentences of the old text that an earlier draft left out.
    """
    # A reflection with line breaks would read as several reflections.
    reflections = [
        msgspec.structs.replace(reflection, content=one_line(reflection.content))
        for reflection in assignment.reflections
    ]
    return {**msgspec.structs.asdict(assignment), "reflections": reflections, "lost": lost}


def validate_draft(answer: str, assignment: Assignment) -> str:
    """Return the cleaned answer, without code block and version lines.

    The length is not checked; see `demand_length`. The lines are checked by `review_draft`.

    Raises:
        DraftRefused: the answer is blank, repeats the prompt, or drops nearly all of the text that
            it replaces.
    """
    text = clean(answer).strip()
    block = _CODE_BLOCK.match(text)
    text = without_version(block.group(1) if block else text)
    words = word_count(text)
    if not words:
        raise DraftRefused("the model's text is blank")
    if has_fence(text):
        raise DraftRefused("the model's text repeats the data delimiters of its prompt")
    if assignment.instructions and text == assignment.instructions.strip():
        raise DraftRefused("the model's text repeats the scope's instructions")
    before = word_count(assignment.current)
    wanted = min(before, assignment.word_limit)
    if before >= APOLOGY_FROM_WORDS and words < wanted * APOLOGY_SHARE:
        raise DraftRefused(f"the model's text has {words} words, the previous one had {before}")
    return text


def review_draft(answer: str, assignment: Assignment) -> Draft:
    """Return the model's text without what must not stay, and with all fixed sentences.

    Sentences of the old text and fixed ones stay. A new one is dropped if a certain rule objects,
    or if it has a name or a number that is in nothing that the model was given.

    Raises:
        DraftRefused: the answer is not a text, or nothing of it may stay.
    """
    text = validate_draft(answer, assignment)
    source = _source_of(assignment)
    prompt = render_own_words("consolidate", **prompt_values(assignment))
    prompt_runs = runs_of_three(prompt) - runs_of_three(source.text)
    fixed = [each.text for each in assignment.fixed]
    known = sentence_keys([*sentences_of(assignment.current), *fixed])
    old_lines = sentence_keys(split_bullet(line)[1] for line in assignment.current.splitlines())
    lines: list[str] = []
    dropped: list[Decision] = []
    heading, emptied = -1, set[int]()  # the last one without a line, and those that lost all lines
    for line in text.splitlines():
        bullet, rest = split_bullet(line)
        whole = not word_count(line) or sentence_key(rest) in old_lines
        parts = [rest] if is_heading(line) or find_secret(rest) else sentences_in(line)
        objections = {
            each: why
            for each in ([] if whole else parts)
            if sentence_key(each) not in known
            and (
                why := find_prompt_words(each, prompt_runs) or _object_to(each, assignment, source)
            )
        }
        if not objections:
            if word_count(line):
                is_title = is_heading(line)
                if not is_title:
                    emptied.discard(heading)
                heading = len(lines) if is_title else -1
            lines.append(line)
            continue
        for each, why in objections.items():  # a sentence with a secret is not shown
            content = "" if find_secret(each) else each
            dropped.append(Decision(content=content, action="DROPPED", reason=why))
        if kept := [each for each in parts if each not in objections]:
            emptied.discard(heading)
            heading = -1
            lines.append(bullet + " ".join(kept))
        elif heading >= 0:
            emptied.add(heading)
    if not sentences_of("\n".join(lines)):
        reasons = "; ".join(dict.fromkeys(each.reason for each in dropped)) or "it says nothing"
        raise DraftRefused(f"nothing of the model's text may stay: {reasons}")
    written = "\n".join(line for place, line in enumerate(lines) if place not in emptied)
    if emptied:
        written = _BLANK_LINES.sub("\n\n", written)
    text, restored = put_back(written.strip(), assignment.fixed, assignment.current)
    return Draft(text=text, dropped=tuple(dropped), restored=restored, taken=assignment.reflections)


def _object_to(sentence: str, assignment: Assignment, source: Source) -> str | None:
    """Return why a new sentence or heading must be dropped, or None."""
    bare = sentence.strip("#[]*: ")
    agents = (assignment.agent,)
    why = object_to_line(bare, agents=agents, takes_orders=assignment.takes_orders)
    if why or is_heading(sentence):
        return why
    return source.find_invention(_LABEL.sub("", sentence))


def _source_of(assignment: Assignment) -> Source:
    """Return everything that the model was given, for names and numbers."""
    times = [each.dated_at for each in assignment.reflections]
    texts = [
        *(assignment.current, assignment.owner, assignment.agent, assignment.persona),
        assignment.instructions or "",
        *assignment.known,
        *(each.text for each in assignment.fixed),
        *(each.content for each in assignment.reflections),
    ]
    return Source("\n".join(texts), [*times, assignment.now])


def find_loss(text: str, assignment: Assignment) -> tuple[str, ...]:
    """Return the sentences of the old text that a new one lacks, if it lost over a third of it."""
    before = word_count(assignment.current)
    if before < LOSS_FROM_WORDS or word_count(text) * LOSS_SHARE >= before * (LOSS_SHARE - 1):
        return ()
    keys = sentence_keys(sentences_of(text))
    return tuple(
        each for each in sentences_of(assignment.current) if sentence_key(each) not in keys
    )


def demand_length(text: str, word_limit: int) -> None:
    """Check the length of a shortened text.

    Raises:
        DraftRefused: the text is over the limit.
    """
    words = word_count(text)
    if words > word_limit:
        raise DraftRefused(
            f"the model's text has {words} words after shortening, the limit is {word_limit}"
        )


def without_version(text: str) -> str:
    """Return the text without version lines added by a model or the platform."""
    return _VERSION_LINE.sub("", _VERSION_FIRST.sub("", text)).strip()


#: The part of a text's word limit that fixed sentences may fill: a third.
FIXED_SHARE = 3
#: Length in words of a heading.
_HEADING_WORDS = 6

_BLANK_LINES = re.compile(r"\n{3,}")
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
