"""Recall by rules: which messages ask for memories."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.context.recall import sign

KNOWN = "<MemoryContext><Consolidated>VERSION: 1\nMars Festival with Björn</Consolidated>"


@pytest.mark.parametrize(
    "message",
    [
        "Do you remember my sister's name?",
        "Remind me of the budget",
        "what did I say about teal",
        "I told you this already.",
        "We discussed the gates, go on.",
        "As I said: teal",
        "It is like last\n time",
    ],
)
def test_phrases_that_ask_to_remember(message: str) -> None:
    assert (sign(message, KNOWN) or "").startswith("phrase ")


@pytest.mark.parametrize(
    "message",
    [
        "When was the deadline?",
        "Who’s the one that said so?",
        "Tell me where we were.",
        "Why didn’t it work",
    ],
)
def test_questions_about_the_past(message: str) -> None:
    assert (sign(message, KNOWN) or "").startswith("question about the past")


@pytest.mark.parametrize(
    "message",
    [
        "Somehow the washing machine runs.",  # "how", "was" are parts of words
        "Whatever, it is didactic.",
        "What is the plan? It was fun.",  # two sentences
        "How do I bake bread?",
        "Please remember that I like teal.",  # to remember, not to recall
        "Hello!",
        "",
        "...",
    ],
)
def test_messages_without_a_sign(message: str) -> None:
    assert sign(message, KNOWN) is None


def test_two_unknown_names_are_a_sign() -> None:
    assert sign("Put Anna next to Carlos please", KNOWN) == (
        "names not in the context: Anna, Carlos"
    )


@pytest.mark.parametrize(
    "message",
    [
        "Put Anna there.",  # one only
        "Put Anna there. And Anna's dog.",  # the same one
        "Put Anna there. Carlos follows.",  # begins a sentence
        "Invite björn, Björn and the Mars Festival",  # known
        "See you on Monday the 4th of May, I'm sure I will.",
        "PLEASE STOP SHOUTING AT ME",
    ],
)
def test_messages_without_unknown_names(message: str) -> None:
    assert sign(message, KNOWN) is None


def test_a_name_inside_a_known_word_is_unknown_and_markup_names_nothing() -> None:
    known = "<Facts>Annabel and Carlosson</Facts>"
    assert sign("so Anna met Carlos, and Facts", known) == (
        "names not in the context: Anna, Carlos, Facts"
    )


@given(message=st.text(max_size=300), known=st.text(max_size=300))
def test_any_text_can_be_judged(message: str, known: str) -> None:
    assert sign(message, known) != ""


@pytest.mark.parametrize("piece", [".", "what ", "I'", "A-", '."', "\n"])
def test_a_long_message_takes_no_quadratic_time(piece: str) -> None:
    sign(piece * 100_000 + "x", "")
