"""Finding an answer in what a model wrote."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from edenmem.llm.structured import InvalidAnswer, answer_schema, parse_answer, schema_name


class Note(BaseModel):
    text: str
    tags: list[str] = []


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
NOTES = st.builds(Note, text=TEXTS, tags=st.lists(TEXTS))


@given(NOTES, st.booleans())
def test_every_answer_is_found_as_it_was_given(note: Note, ascii_only: bool) -> None:
    written = json.dumps(note.model_dump(), ensure_ascii=ascii_only)
    assert parse_answer(written, Note) == note


@given(NOTES)
def test_fences_reasoning_and_talk_around_it_do_no_harm(note: Note) -> None:
    # In real answers a fence inside a JSON text is escaped as a newline is; both are here.
    written = json.dumps(note.model_dump())
    for around in (
        "```json\n{}\n```",
        "```\n{}\n```",
        "  {}\n",
        "Here it is: {}. Anything else?",
        "<think>\nShall I say {{'text'}}? Yes.\n</think>\n{}",
        "Sure!\n```JSON\n{}\n```\nI hope {{this}} helps.",
    ):
        assert parse_answer(around.format(written), Note) == note


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("<think>hm</think>", "empty"),
        ("no", "no whole JSON object"),
        ('{"text": "cut', "no whole JSON object"),
        ('["text"]', "no whole JSON object"),
        ("[" * 100_000, "no whole JSON object"),
        ("{}", "text: Field required"),
        ('{"text": null}', "text: Input should be a valid string"),
    ],
)
def test_what_is_no_answer_says_why(text: str, why: str) -> None:
    with pytest.raises(InvalidAnswer, match=why):
        parse_answer(text, Note)


def test_the_reason_stays_short() -> None:
    wrong = json.dumps({"text": "x", "tags": list(range(1000))})
    with pytest.raises(InvalidAnswer, match=r"and 995 more") as caught:
        parse_answer(wrong, Note)
    assert len(str(caught.value)) < 600


class Cat(BaseModel):
    kind: Literal["cat"]
    title: str = Field(default="", max_length=9, title="What it is called")


class Dog(BaseModel):
    kind: Literal["dog"]
    default: int = 3


class Zoo(BaseModel):
    animals: list[Cat | Dog] = Field(description="All of them.")


def test_the_schema_is_strict_and_keeps_names_that_look_like_keywords() -> None:
    schema = answer_schema(Zoo)
    cat, dog = schema["$defs"]["Cat"], schema["$defs"]["Dog"]
    assert cat["required"] == ["kind", "title"]
    assert dog["required"] == ["kind", "default"]
    assert cat["additionalProperties"] is False
    assert cat["properties"]["kind"] == {"enum": ["cat"], "type": "string"}
    assert cat["properties"]["title"] == {"type": "string"}
    assert schema["properties"]["animals"]["description"] == "All of them."
    assert schema_name(Zoo) == "Zoo"
