"""Check the English of everything that a person reads: help, errors, docs, comments, prompts.

The words below read as translated or bookish. Each has a plain replacement. Ruff's D401 (see
``pyproject.toml``) requires imperative docstrings.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
BANNED = {
    r"whoever": "the person who, anyone who",
    r"somebody": "someone, or the noun",
    r"anew": "again",
    r"beside": "next to, with, in addition to",
    r"by now": "already",
    r"mend(s|ed|ing)?": "fix, repair",
    r"whatever": "any, regardless of",
    r"wherein": "in which",
    r"thereof": "of it, or the noun",
    r"so many": "N, or a limit",
    r"time and again": "repeatedly",
    r"otherwise than": "different from",
    r"(come|comes|came) to (its|their|an) end": "end, finish",
    r"alike": "equally, in the same format",
    r"whose (it|they) (is|are|was)": "owner",
    r"(is|are|was) no (id|ids|number|time|date|list|text|object|name|length|valid|json)": "invalid",
    r"of one's own": "your own",
    r"not any more": "no longer",
    r"nobody is": "name the option that is missing",
    r"(is|are|was|been) told": "gets, receives, reports",
    r"in vain": "without effect",
    r"goes on": "continues",
    r"stands (in|for|at)": "is in, means",
}
#: British spellings; names, such as the setting ``dedup_neighbours``, stay as they are.
BRITISH = (
    r"(behavi|col|fav|hon|neighb|rum)our\w*",
    r"(acknowledge|judge)ments?",
    r"(analy|cataly)s(e|ed|es|ing)",
    r"(catalogue|centre|defence|licence|offence)s?",
    r"(label|model|signal|travel)l(ed|ing)",
    r"(mis)?spelt|learnt|whilst|amongst|towards|artefacts?",
    r"[a-z]*(apolog|capital|general|initial|item|maxim|minim|normal|optim|organ|parametr|priorit|random"
    r"|recogn|sanit|serial|special|summar|synchron|token|util|visual)is(e[drs]?|ing|ations?|able)",
)
_BRITISH = re.compile(rf"(?<![\w`.\"'])({'|'.join(BRITISH)})(?! ?\(|[\w`=\"']|\.\w)", re.IGNORECASE)
_BANNED = re.compile("|".join(rf"\b{each}\b" for each in BANNED), re.IGNORECASE)


def _read_texts() -> Iterator[Path]:
    for suffix in ("py", "md", "j2"):
        yield from (ROOT / "edenmem").rglob(f"*.{suffix}")
    for folder in ("examples", "migrations"):
        yield from (ROOT / folder).rglob("*.py")
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "SECURITY.md"))


def find_british(text: str, *, is_code: bool) -> list[str]:
    """List British spellings in prose: of Python only comments and strings of several words."""
    if not _BRITISH.search(text):
        return []
    if not is_code:
        return [
            hit.group()
            for hit in _BRITISH.finditer(re.sub(r"(?s)```.*?```|\{[{%].*?[%}]\}", "", text))
        ]
    found = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT" or (kind in ("STRING", "FSTRING_MIDDLE") and " " in token.string):
            found += [f"line {token.start[0]}: {hit[0]}" for hit in _BRITISH.finditer(token.string)]
    return found


def find_banned(text: str) -> list[str]:
    """List banned words with their line numbers; a line break counts as a space."""
    flat = text.replace("\n", " ")
    return [
        f"line {text.count(chr(10), 0, hit.start()) + 1}: {hit.group()}"
        for hit in _BANNED.finditer(flat)
    ]


def test_the_search_finds_words_in_any_case_and_over_line_ends():
    assert find_banned("Fixed.\nWhoever looks, time and\nagain") == [
        "line 2: Whoever",
        "line 2: time and again",
    ]
    assert find_banned("besides, many, mender, nobody knows") == []


def test_british_spellings_are_found_in_prose_but_not_in_names():
    code = """label = info.initialised  # of `normalise`, "normalise", organise() and is_recognised
name = "catalogue"  # A catalogue.
text = f"The judgement of {name}."
"""
    found = find_british(code, is_code=True)
    assert found == ["line 2: catalogue", "line 3: judgement"]
    page = (
        "A colour, and `colours`.\\n```\\nneighbour\\n```\\n{{ fact.neighbours }} exercise wisely"
    )
    assert find_british(page, is_code=False) == ["colour"]


def test_no_text_uses_a_british_spelling():
    found = {
        str(path.relative_to(ROOT)): hits
        for path in _read_texts()
        if path.parent.name != "migrations"  # released code
        and (hits := find_british(path.read_text(encoding="utf-8"), is_code=path.suffix == ".py"))
    }
    assert found == {}


def test_no_text_uses_a_banned_word():
    found = {
        str(path.relative_to(ROOT)): hits
        for path in _read_texts()
        if (hits := find_banned(path.read_text(encoding="utf-8")))
    }
    assert found == {}
