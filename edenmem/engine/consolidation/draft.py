"""A scope's text as a model drafts it: what it is asked, and what is accepted of its answer."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from edenmem.engine.runtime.llm_session import has_fence
from edenmem.errors import EdenmemError
from edenmem.models.memory import Reflection
from edenmem.models.scope import ScopeKind
from edenmem.text import clean, one_line, word_count

#: A text that had at least this many words is not replaced by one with less than this share of
#: them: that is an apology or "no changes", not a memory.
LOSS_FROM_WORDS = 50
LOSS_SHARE = 0.1

#: The version number is ours; the platform's own texts begin with it and models like to copy it.
#: No run of marks is gone through twice: a model that is stuck repeats one without end.
_VERSION_FIRST = re.compile(
    r"\A(?:[\s*_#`>-]*+version[\s*_]*+(?:[:=#][\s*_]*+)?v?\d++[\s*_.]*(?:\n|\Z))+", re.I
)
_VERSION_LINE = re.compile(r"^[ \t]*VERSION:[ \t]*\d+[ \t]*(?:\n|\Z)", re.M)
_CODE_BLOCK = re.compile(r"\A```[a-z]*\n(.*)\n```\Z", re.S)


class DraftRefused(EdenmemError):
    """A model's text that is not written, and why."""


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """All that one draft is made from. ``owner`` is the name of whose memory the text is, ``known``
    the texts of the same user's other accounts."""

    kind: ScopeKind
    owner: str
    current: str
    known: tuple[str, ...] = ()
    reflections: tuple[Reflection, ...]
    instructions: str | None
    word_limit: int
    now: datetime


def prompt_values(assignment: Assignment) -> dict[str, object]:
    """The values of the prompt that asks for the whole new text."""
    # One line for each: a reflection with line breaks would read as several of them.
    reflections = [
        msgspec.structs.replace(reflection, content=one_line(reflection.content))
        for reflection in assignment.reflections
    ]
    return {**msgspec.structs.asdict(assignment), "reflections": reflections}


def validate_draft(answer: str, assignment: Assignment) -> str:
    """The answer as it may be stored: cleaned, without code block and version lines.

    Its length is not judged here; see `demand_length`.

    Raises:
        DraftRefused: nothing is left of it, it repeats the prompt, or it drops nearly all that
            the text it replaces says.
    """
    text = _without_wrapping(clean(answer))
    words = word_count(text)
    if not words:
        raise DraftRefused("the model's text is blank")
    if has_fence(text):
        raise DraftRefused("the model's text repeats the marks that fence data in its prompt")
    if assignment.instructions and text == assignment.instructions.strip():
        raise DraftRefused("the model's text is the scope's instructions, not its memory")
    before = word_count(assignment.current)
    if before >= LOSS_FROM_WORDS and words < before * LOSS_SHARE:
        raise DraftRefused(f"the model's text has {words} words where {before} were before")
    return text


def demand_length(text: str, word_limit: int) -> None:
    """Refuse a text that is over the limit.

    Raises:
        DraftRefused: it is.
    """
    words = word_count(text)
    if words > word_limit:
        raise DraftRefused(
            f"the model's text has {words} words, the limit is {word_limit}, "
            "and shortening it did not help"
        )


def without_version(text: str) -> str:
    """``text`` without the version lines that a model or the platform put into it."""
    return _VERSION_LINE.sub("", _VERSION_FIRST.sub("", text)).strip()


def _without_wrapping(text: str) -> str:
    text = text.strip()
    block = _CODE_BLOCK.match(text)
    return without_version(block.group(1) if block else text)
