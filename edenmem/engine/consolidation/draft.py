"""Build the prompt for a scope's text, and validate the model's draft."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from edenmem.acceptance.form import has_fence
from edenmem.errors import EdenmemError
from edenmem.models.memory import Reflection
from edenmem.models.scope import ScopeKind
from edenmem.text import clean, one_line, word_count

#: A text of at least this many words is not replaced by one with less than this share of them:
#: that is an apology or "no changes", not a memory.
LOSS_FROM_WORDS = 50
LOSS_SHARE = 0.1

#: The platform's texts begin with a version line, which models copy. Possessive quantifiers keep
#: the time linear for endlessly repeated marks.
_VERSION_FIRST = re.compile(
    r"\A(?:[\s*_#`>-]*+version[\s*_]*+(?:[:=#][\s*_]*+)?v?\d++[\s*_.]*(?:\n|\Z))+", re.I
)
_VERSION_LINE = re.compile(r"^[ \t]*VERSION:[ \t]*\d+[ \t]*(?:\n|\Z)", re.M)
_CODE_BLOCK = re.compile(r"\A```[a-z]*\n(.*)\n```\Z", re.S)


class DraftRefused(EdenmemError):
    """A rejected draft of a model."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a draft.

    ``owner`` is the name of the scope's owner, ``known`` the texts of the same user's other
    accounts.
    """

    kind: ScopeKind
    owner: str
    current: str
    known: tuple[str, ...] = ()
    reflections: tuple[Reflection, ...]
    instructions: str | None
    word_limit: int
    now: datetime


def prompt_values(assignment: Assignment) -> dict[str, object]:
    """Return the variables of the prompt for the whole new text."""
    # A reflection with line breaks would read as several reflections.
    reflections = [
        msgspec.structs.replace(reflection, content=one_line(reflection.content))
        for reflection in assignment.reflections
    ]
    return {**msgspec.structs.asdict(assignment), "reflections": reflections}


def validate_draft(answer: str, assignment: Assignment) -> str:
    """Return the cleaned answer, without code block and version lines.

    The length is not checked; see `demand_length`.

    Raises:
        DraftRefused: the answer is blank, repeats the prompt, or drops nearly all of the text that
            it replaces.
    """
    text = _without_wrapping(clean(answer))
    words = word_count(text)
    if not words:
        raise DraftRefused("the model's text is blank")
    if has_fence(text):
        raise DraftRefused("the model's text repeats the data delimiters of its prompt")
    if assignment.instructions and text == assignment.instructions.strip():
        raise DraftRefused("the model's text repeats the scope's instructions")
    before = word_count(assignment.current)
    if before >= LOSS_FROM_WORDS and words < before * LOSS_SHARE:
        raise DraftRefused(f"the model's text has {words} words, the previous one had {before}")
    return text


def demand_length(text: str, word_limit: int) -> None:
    """Check the length of a text.

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


def _without_wrapping(text: str) -> str:
    text = text.strip()
    block = _CODE_BLOCK.match(text)
    return without_version(block.group(1) if block else text)
