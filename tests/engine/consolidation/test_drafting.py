"""Validation of a model's drafts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.engine.consolidation.draft import (
    Assignment,
    DraftRefused,
    demand_length,
    prompt_values,
    validate_draft,
)
from edenmem.engine.runtime.llm_session import render
from edenmem.models.scope import Scope, ScopeKind
from tests.support.builders import NOW, make_reflection

SCOPE = Scope.agent("a" * 24)


def assignment(current: str = "", instructions: str | None = None) -> Assignment:
    return Assignment(
        kind=ScopeKind.AGENT,
        owner="eve",
        current=current,
        reflections=(make_reflection(SCOPE, "Anna likes\n- [fake] teal."),),
        instructions=instructions,
        word_limit=300,
        now=NOW,
    )


@pytest.mark.parametrize(
    "answer",
    [
        "VERSION: 4\n[PREFERENCES]\n- teal",
        "VERSION: 4\n\n[PREFERENCES]\n- teal\n",
        "**Version: 4**\n[PREFERENCES]\n- teal",
        "# VERSION 12\n[PREFERENCES]\n- teal",
        "[PREFERENCES]\nVERSION: 3\n- teal",
        "```markdown\nVERSION: 4\n[PREFERENCES]\n- teal\n```",
        "\x00[PREFERENCES]\r\n- teal\x1b",
    ],
)
def test_version_lines_and_code_blocks_are_removed(answer: str) -> None:
    assert validate_draft(answer, assignment()) == "[PREFERENCES]\n- teal"


def test_a_text_about_versions_stays() -> None:
    text = "Version 2 of the app is out.\n- VERSION: 3 is planned"
    assert validate_draft(text, assignment()) == text


@pytest.mark.parametrize(
    "answer", ["", "   \n", "VERSION: 3", "```\n\n```", "---", "\u200b", "\x00"]
)
def test_known_failure_11_a_blank_answer_is_refused(answer: str) -> None:
    """Known failure 11: a blank answer overwrote the consolidated text."""
    with pytest.raises(DraftRefused, match="blank"):
        validate_draft(answer, assignment("[PREFERENCES]\n- teal"))


def test_an_answer_repeating_the_prompt_is_rejected() -> None:
    work = assignment("Anna likes teal.", "Keep it in rhymes.")
    _, user = render("consolidate", **prompt_values(work))
    with pytest.raises(DraftRefused, match="delimiters"):
        validate_draft(user, work)
    with pytest.raises(DraftRefused, match="instructions"):
        validate_draft("Keep it in rhymes.\n", work)


@pytest.mark.parametrize("marks", [" ", "*_", "\t", "\n"])
def test_an_endlessly_repeated_mark_takes_linear_time(marks: str) -> None:
    """In quadratic time this would block for an hour and lose all leases."""
    answer = f"version{marks * 200_000}x"
    assert validate_draft(answer, assignment()) == answer


def test_an_apology_for_a_long_text_is_rejected() -> None:
    work = assignment("Anna likes teal. " * 40)
    with pytest.raises(DraftRefused, match="3 words, the previous one had 120"):
        validate_draft("No changes needed.", work)
    assert validate_draft("Anna likes teal. " * 5, work)


def test_known_failure_37_limits_count_words_of_every_script() -> None:
    """Known failure 37: word limits live only in the prompt and count by spaces."""
    with pytest.raises(DraftRefused, match="400 words after shortening, the limit is 300"):
        demand_length("记" * 400, 300)
    demand_length("记" * 300, 300)


def test_a_reflection_is_one_line_in_the_prompt() -> None:
    _, user = render("consolidate", **prompt_values(assignment()))
    assert "1. [2026-03-14 12:00 UTC] Anna likes - [fake] teal." in user


@settings(max_examples=10)
@given(st.text(max_size=200))
def test_any_answer_is_rejected_or_has_no_version_line(answer: str) -> None:
    try:
        text = validate_draft(answer, assignment())
    except DraftRefused:
        return
    assert text == text.strip() != ""
    assert not text.startswith("VERSION:")
    assert validate_draft(text, assignment()) == text
