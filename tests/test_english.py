"""Check the English of everything that a person reads: help, errors, docs, comments, prompts.

The words below read as translated or bookish. Each has a plain replacement. Ruff's D401 (see
``pyproject.toml``) requires imperative docstrings.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

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
#: British spellings of whole words, in prose and in names.
BRITISH = (
    r"(behavi|col|fav|harb|hon|neighb|rum)our\w*",
    r"(acknowledge|judge)ments?",
    r"(analy|cataly)s(e|ed|es|ing)",
    r"(catalogue|centre|defence|licence|(kilo)?metre|litre|offence)s?",
    r"(label|model|signal|travel)l(ed|ing)",
    r"(mis)?spelt|learnt|whilst|amongst|towards|artefacts?",
    r"[a-z]*(apolog|capital|general|initial|item|maxim|minim|normal|optim|organ|parametr|priorit|random"
    r"|recogn|sanit|serial|special|summar|synchron|token|util|visual)is(e[drs]?|ing|ations?|able)",
)
_BRITISH = re.compile(rf"(?<![\w`.\"'])({'|'.join(BRITISH)})(?! ?\(|[\w`=\"']|\.\w)", re.IGNORECASE)
_BRITISH_WORD = re.compile("|".join(BRITISH), re.IGNORECASE)
#: The words of a name: `find_neighbor`, `FindNeighbor` and `FIND_NEIGHBOR` have two.
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: What is a name in files other than Python: keys of tables, and the expressions of templates.
_NAMES = {".toml": re.compile(r"(?m)^\w+(?= =)|^\[[\w.]+\]"), ".j2": re.compile(r"\{[{%].*?[%}]\}")}
_NAME = re.compile(r"\w+")
#: A name or a string of one word: the key of a field, of a setting, an option.
_NAME_OR_KEY = re.compile(r"""\w+|[bfr]*(["'])[\w.-]+\1""")
_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED)})\b")


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


def is_british(name: str) -> bool:
    """Check whether a word of a name in snake_case or CamelCase has a British spelling."""
    return any(map(_is_british_word, _WORD.findall(name)))


@cache
def _is_british_word(word: str) -> bool:
    return _BRITISH_WORD.fullmatch(word) is not None


def find_british_names(text: str, suffix: str, *, with_strings: bool) -> list[str]:
    """List names with British spellings; ``with_strings`` also strings of one word (keys)."""
    words = set(_WORD.findall(text))  # most files have none: parse only the others
    if not any(map(_is_british_word, words)):
        return []
    if suffix != ".py":
        return [name for name in _NAMES[suffix].findall(text) if is_british(name)]
    pattern = _NAME_OR_KEY if with_strings else _NAME
    return [
        f"line {token.start[0]}: {token.string}"
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if pattern.fullmatch(token.string) and is_british(token.string)
    ]


def find_banned(text: str) -> list[str]:
    """List banned words with their line numbers; a line break counts as a space."""
    flat = text.replace("\n", " ")
    return [
        f"line {text.count(chr(10), 0, hit.start()) + 1}: {flat[slice(*hit.span())]}"
        for hit in _BANNED.finditer(flat.lower())
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


def test_british_spellings_are_found_in_names():
    code = """def summarise_all(MOST_NEIGHBOURS, exercise, cancelled, honest):
    x = LabelledQuery["normalised"], "a colour", 'times.neighbours', "--colour", "Catalog"
"""
    names = ["line 1: summarise_all", "line 1: MOST_NEIGHBOURS", "line 2: LabelledQuery"]
    strings = ['"normalised"', "'times.neighbours'", '"--colour"']
    assert find_british_names(code, ".py", with_strings=False) == names
    assert find_british_names(code, ".py", with_strings=True) == [
        *names,
        *(f"line 2: {each}" for each in strings),
    ]
    table = '[colours]\nnear_neighbours = """\nhonour\n"""\n'
    found = find_british_names(table, ".toml", with_strings=False)
    assert found == ["[colours]", "near_neighbours"]
    page = "A neighbour: {% for each in fact.neighbours %}"
    found = find_british_names(page, ".j2", with_strings=False)
    assert found == ["{% for each in fact.neighbours %}"]


@pytest.mark.slow
def test_no_name_has_a_british_spelling():
    found = {}
    for folder in ("edenmem", "examples", "tests"):
        for path in (ROOT / folder).rglob("*.*"):
            name = str(path.relative_to(ROOT))
            if path.suffix != ".pyc" and is_british(name):
                found[name] = ["its own name"]
            if path.suffix in (".py", ".toml", ".j2"):
                text = path.read_text(encoding="utf-8")
                is_shipped = folder != "tests"  # in tests, strings of one word are mostly data
                if hits := find_british_names(text, path.suffix, with_strings=is_shipped):
                    found[name] = hits
    assert found == {}


@pytest.mark.slow
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
