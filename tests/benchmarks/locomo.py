"""LoCoMo as a labeled set, read from its published file (``locomo10.json``).

Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents" (2024). Each
conversation becomes a user of one agent. The facts are the observations, which are statements
about a speaker with the turns that they come from, or else the turns themselves with speaker and
date. A question's evidence names turns: relevant are these, or the observations that come from
them. A question of the fifth category is a trap that the conversation does not answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from edenmem.models.scope import ScopeKind
from tests.benchmarks.labels import Labeled, LabeledFact, Query

AGENT = "locomo"
KINDS: Mapping[int, str] = {
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    4: "single-hop",
    5: "no-answer",
}
Unit = Literal["observations", "turns"]

#: As in "D1:3", several of which may stand in one text, with slips such as "D:11:26".
_TURN = re.compile(r"D:?(\d+):(\d+)")


class LocomoError(Exception):
    """The file is not in the shape that LoCoMo is published in."""


def load(path: Path, *, unit: Unit = "observations") -> Labeled:
    """The file's conversations as facts, and its questions as queries.

    A question whose evidence names nothing that became a fact is left out, since no search could
    find what is not there; questions that have no answer stay.

    Raises:
        LocomoError: the file has another shape.
    """
    facts: list[LabeledFact] = []
    queries: list[Query] = []
    try:
        samples = msgspec.json.decode(path.read_bytes())
        for sample in samples:
            one = list((_observations if unit == "observations" else _turns)(sample))
            facts += [fact for fact, _ in one]
            labels: dict[str, list[str]] = {}
            for fact, sources in one:
                for turn in sources:
                    labels.setdefault(turn, []).append(fact.id)
            queries += _questions(sample, labels)
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise LocomoError(f"{path} is not LoCoMo's file: {error!r}") from error
    return Labeled(facts=facts, queries=queries)


def _turn_ids(evidence: Any) -> list[str]:
    """All turns that a text or a list of texts names."""
    texts = [evidence] if isinstance(evidence, str) else list(evidence or ())
    found = [match for text in texts for match in _TURN.findall(str(text))]
    return list(dict.fromkeys(f"D{session}:{turn}" for session, turn in found))


def _sessions(conversation: Mapping[str, Any]) -> Iterator[tuple[str, str, list[Any]]]:
    """Number, date and turns of each session that took place."""
    for name, turns in conversation.items():
        found = re.fullmatch(r"session_(\d+)", name)
        if found and turns:
            yield found[1], conversation.get(f"{name}_date_time", ""), turns


def _turns(sample: Mapping[str, Any]) -> Iterator[tuple[LabeledFact, list[str]]]:
    for _, date, turns in _sessions(sample["conversation"]):
        for turn in turns:
            shown = f" (shows {turn['blip_caption']})" if turn.get("blip_caption") else ""
            text = f"{turn['speaker']}, {date}: {turn['text']}{shown}"
            yield _fact(sample, turn["dia_id"], text), [turn["dia_id"]]


def _observations(sample: Mapping[str, Any]) -> Iterator[tuple[LabeledFact, list[str]]]:
    dates = {number: date for number, date, _ in _sessions(sample["conversation"])}
    seen: set[str] = set()
    for name, by_speaker in sample["observation"].items():
        number = name.removeprefix("session_").removesuffix("_observation")
        for speaker, observed in by_speaker.items():
            for place, (text, sources) in enumerate(observed):
                dated = f"{text} ({dates.get(number, '')})" if dates.get(number) else str(text)
                if dated in seen:  # the same sentence twice is one fact
                    continue
                seen.add(dated)
                fact = _fact(sample, f"{name}/{speaker}/{place}", dated)
                yield fact, _turn_ids(sources)


def _fact(sample: Mapping[str, Any], label: str, text: str) -> LabeledFact:
    user = str(sample["sample_id"])
    return LabeledFact(
        id=f"{user}/{label}", agent=AGENT, scope=ScopeKind.USER, user=user, content=text
    )


def _questions(sample: Mapping[str, Any], labels: Mapping[str, list[str]]) -> Iterator[Query]:
    for question in sample["qa"]:
        kind = KINDS[question["category"]]
        turns = [] if kind == "no-answer" else _turn_ids(question.get("evidence"))
        relevant = dict.fromkeys(label for turn in turns for label in labels.get(turn, ()))
        if not relevant and kind != "no-answer":
            continue
        yield Query(
            query=question["question"],
            agent=AGENT,
            user=str(sample["sample_id"]),
            kind=kind,
            relevant=tuple(relevant),
        )
