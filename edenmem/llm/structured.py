"""Structured output: the JSON schema of an answer, and the parsing of answers."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel, ValidationError

from edenmem.llm.protocol import AnswerT

#: Keywords that strict structured output does not support; pydantic checks them in the answer.
_UNKNOWN_KEYWORDS = frozenset({"default", "title", "minLength", "maxLength", "uniqueItems"})
_REASONING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(?P<inside>.*?)```", re.DOTALL | re.IGNORECASE)
_SHOWN_PROBLEMS = 5


class InvalidAnswer(Exception):
    """An answer does not match the schema; the message is written for the model."""


def answer_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of an answer in the subset for strict structured output.

    All properties are required and no others are allowed; optional properties are nullable.
    """
    schema: dict[str, Any] = _strict(answer.model_json_schema())
    return schema


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict: dict[str, Any] = {}
    for keyword, value in node.items():
        if keyword in {"properties", "$defs"}:  # the keys are names, not keywords
            strict[keyword] = {name: _strict(inner) for name, inner in value.items()}
        elif keyword == "const":
            strict["enum"] = [value]
        elif keyword == "oneOf":
            strict["anyOf"] = _strict(value)
        elif keyword not in _UNKNOWN_KEYWORDS | {"discriminator"}:
            strict[keyword] = _strict(value)
    if "properties" in strict:
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False
    return strict


def schema_name(answer: type[BaseModel]) -> str:
    """Return a schema name that endpoints accept."""
    return re.sub(r"\W", "_", answer.__name__, flags=re.ASCII)[:64]


def schema_instruction(answer: type[BaseModel]) -> str:
    """Return the instruction for an endpoint that does not support a schema."""
    schema = json.dumps(answer_schema(answer), ensure_ascii=False)
    return f"Answer with one JSON object that matches this JSON schema, and nothing else:\n{schema}"


def parse_answer(text: str, answer: type[AnswerT]) -> AnswerT:
    """Return the answer in a text, which may be in a code fence or between other words.

    Raises:
        InvalidAnswer: the text has no answer, or the answer does not validate.
    """
    found = _json_object(text)
    try:
        return answer.model_validate_json(found)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the answer'}: {problem['msg']}"
            for problem in error.errors(
                include_url=False, include_context=False, include_input=False
            )
        ]
        more = f" (and {len(problems) - _SHOWN_PROBLEMS} more)" * (len(problems) > _SHOWN_PROBLEMS)
        raise InvalidAnswer("; ".join(problems[:_SHOWN_PROBLEMS]) + more) from None


def _json_object(text: str) -> str:
    text = _REASONING.sub("", text).strip()
    if not text:
        raise InvalidAnswer("the answer is empty")
    fenced = _FENCE.search(text)
    for candidate in (
        text,
        fenced["inside"].strip() if fenced else "",
        text[max(text.find("{"), 0) :],
    ):
        if not candidate.startswith("{"):
            continue
        try:
            _, end = json.JSONDecoder().raw_decode(candidate)
        except (ValueError, RecursionError):
            continue
        return candidate[:end]
    raise InvalidAnswer("there is no whole JSON object in it")
