"""Read ``words.toml``: the words of the main languages that the rules look for."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources


@cache
def _tables() -> dict[str, dict[str, str]]:
    return tomllib.loads(resources.files(__package__).joinpath("words.toml").read_text("utf-8"))


def text_of(name: str) -> str:
    """Return the text of an entry, such as ``form.pronoun``, without its line breaks."""
    table, _, key = name.partition(".")
    return _tables()[table][key].replace("\n", "")


def pattern(name: str, flags: re.RegexFlag = re.IGNORECASE) -> re.Pattern[str]:
    """Return an entry as a pattern, by default one that ignores case."""
    return re.compile(text_of(name), flags)


def word_set(name: str) -> frozenset[str]:
    """Return an entry as a set of words."""
    table, _, key = name.partition(".")
    return frozenset(_tables()[table][key].split())
