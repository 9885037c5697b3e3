"""Word tables of the acceptance rules: TOML files by subject, read on first use and cached.

A pattern may span several lines, which are joined without a space.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _subject(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__name__).joinpath(f"{name}.toml").read_text("utf-8"))


@cache
def table(name: str) -> Any:
    """Return the value of a dotted name, such as ``dates.months``."""
    subject, *keys = name.split(".")
    found: Any = _subject(subject)
    for key in keys:
        found = found[key]
    return found


@cache
def pattern_text(name: str) -> str:
    """Return the regular expression of a dotted name as one line."""
    return str(table(name)).replace("\n", "")


@cache
def pattern(name: str) -> re.Pattern[str]:
    """Compile the regular expression of a dotted name."""
    return re.compile(pattern_text(name))


_NEVER = re.compile("(?!)")


@cache
def language_pattern(name: str, language: str) -> re.Pattern[str]:
    """Compile a table's pattern for one language.

    ``pattern`` is the frame around the words of a language. ``unspaced`` has whole patterns for
    scripts without spaces between words, ``default`` the pattern for all other languages. Without
    a default, nothing matches.
    """
    found = table(name)
    if language in found.get("unspaced", ()):
        return pattern(f"{name}.unspaced.{language}")
    if language not in found:
        return pattern(f"{name}.default") if "default" in found else _NEVER
    words = pattern_text(f"{name}.{language}")
    return re.compile(pattern_text(f"{name}.pattern").replace("{words}", words))


@cache
def word_set(name: str) -> frozenset[str]:
    """Return the words of a dotted name."""
    return frozenset(table(name).split())


@cache
def rows(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the lines of a dotted name, each as its words."""
    return tuple(tuple(line.split()) for line in table(name).splitlines())
