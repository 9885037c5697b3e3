"""Structured output: the JSON schema that is asked for, and the answer found in what came."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel, ValidationError

from edenmem.llm.protocol import AnswerT

#: Keywords that strict structured output does not know; pydantic checks them on the answer.
_UNKNOWN_KEYWORDS = frozenset({"default", "title", "minLength", "maxLength", "uniqueItems"})
_REASONING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(?P<inside>.*?)```", re.DOTALL | re.IGNORECASE)
_SHOWN_PROBLEMS = 5


class InvalidAnswer(Exception):
    """The text is not an answer of the wanted kind; the message says why, for the model to read."""


def answer_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of ``answer`` in the subset that strict structured output takes.

    Every property is required and no other is allowed; optional ones are nullable instead.
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
        if keyword in {"properties", "$defs"}:  # here the keys are names of ours, not keywords
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
    """A name that endpoints accept."""
    return re.sub(r"\W", "_", answer.__name__, flags=re.ASCII)[:64]


def schema_instruction(answer: type[BaseModel]) -> str:
    """What to say to a model whose endpoint does not take a schema."""
    schema = json.dumps(answer_schema(answer), ensure_ascii=False)
    return f"Answer with one JSON object that matches this JSON schema, and nothing else:\n{schema}"


def parse_answer(text: str, answer: type[AnswerT]) -> AnswerT:
    """The answer in ``text``, which may stand in a code fence or between other words.

    Raises:
        InvalidAnswer: there is none, or it does not validate.
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
