"""``python -m tests.benchmarks.extracting --base-url URL --model NAME``: what a model extracts.

Twelve labeled conversations of our own go through ``edenmem form`` in a fresh process and a fresh
SQLite store each, and what is in memory afterwards is compared with the labels. Any
OpenAI-compatible endpoint will do; a key is taken from ``OPENAI_API_KEY``.

``--prompt NAME=FILE`` measures another system's prompt on the same endpoint: the file is the system
message, the conversation is the user message, and every string of the JSON that comes back (in a
list, or under ``content``, ``fact``, ``text`` or ``memory``) counts as a fact. Nothing of it is
checked by code, as a prompt alone is what is measured.

=============  =================================================================================
column         meaning
=============  =================================================================================
recall         expected facts that at least one extracted fact states, of 71
precision      extracted facts that state an expected fact and nothing that must not be kept
harmful        extracted facts that hold a secret, an order, a joke, a guess, or what was corrected
grounded       extracted facts whose numbers, and 3 of 5 of whose words, occur in the conversation
tokens, calls  for all conversations together, as the endpoint counts them
=============  =================================================================================

A label is a set of words of which each must occur (or one of its alternatives), so the comparison
is the same for every model, blind to style, and shares no code with acceptance.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from openai import OpenAI, OpenAIError

from tests.support.intervals import wilson

CONVERSATIONS = Path(__file__).parent / "extraction" / "conversations.jsonl"
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+")
_FENCE = re.compile(r"^\s*```(?:json)?\s*|\s*```\s*$")  # removed, as mem0 does
_WITHOUT_SPACES = re.compile(r"[぀-ヿ一-鿿]")


class Label(msgspec.Struct, frozen=True):
    """What is looked for in a fact: of each group one alternative must occur."""

    words: tuple[tuple[str, ...], ...]
    fact: str = ""
    why: str = ""

    def is_in(self, text: str) -> bool:
        """Whether a text says it."""
        return all(any(word in text for word in group) for group in self.words)


class Conversation(msgspec.Struct, frozen=True):
    """A session as ``edenmem import`` takes it, with its labels."""

    session: str
    agent: str
    users: tuple[str, ...]
    language: str
    kind: str
    title: str
    messages: tuple[dict[str, str], ...]
    expected: tuple[Label, ...]
    never: tuple[Label, ...]

    @property
    def text(self) -> str:
        """Everything that was said, with who said it and when."""
        return "\n".join(
            f"[{each['created_at']}] {each['name']}: {each['content']}" for each in self.messages
        )


class Extraction(NamedTuple):
    """What a system made of one conversation."""

    facts: list[str]
    tokens: int
    calls: int
    failure: str = ""


class Score(NamedTuple):
    """The counts of one system, or of one conversation."""

    expected: int = 0
    found: int = 0
    facts: int = 0
    right: int = 0
    harmful: int = 0
    grounded: int = 0
    tokens: int = 0
    calls: int = 0
    failures: int = 0

    def plus(self, other: Score) -> Score:
        """Both together."""
        return Score(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def read_conversations(path: Path = CONVERSATIONS) -> list[Conversation]:
    """The labeled conversations."""
    lines = path.read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Conversation) for line in lines]


def normalize(text: str) -> str:
    """A text as labels are compared with it."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def is_grounded(fact: str, conversation: str) -> bool:
    """Whether a fact's numbers and 60 % of its words (by their first four letters) were said.

    Dates are let through: they are worked out from what was said. In scripts without spaces pairs
    of characters stand for words.
    """
    said = normalize(conversation)
    without_dates = re.sub(r"\d{4}-\d\d-\d\d|\b(19|20)\d\d\b", " ", normalize(fact))
    numbers = set(_NUMBER.findall(without_dates))
    if not numbers <= set(_NUMBER.findall(said)):
        return False
    if _WITHOUT_SPACES.search(fact):
        characters = [each for each in without_dates if each.isalnum()]
        pieces = {"".join(pair) for pair in pairwise(characters)}
        said = "".join(each for each in said if each.isalnum())
        return bool(pieces) and sum(each in said for each in pieces) >= 0.6 * len(pieces)
    words = [each[:4] for each in _WORD.findall(without_dates) if len(each) > 3]
    spoken = {each[:4] for each in _WORD.findall(said)}
    return bool(words) and sum(each in spoken for each in words) >= 0.6 * len(words)


def score(conversation: Conversation, made: Extraction) -> Score:
    """Compare what was extracted with the labels."""
    texts = [normalize(fact) for fact in made.facts]
    harmful = [any(label.is_in(text) for label in conversation.never) for text in texts]
    states = [any(label.is_in(text) for label in conversation.expected) for text in texts]
    return Score(
        expected=len(conversation.expected),
        found=sum(any(label.is_in(text) for text in texts) for label in conversation.expected),
        facts=len(texts),
        right=sum(says and not harms for says, harms in zip(states, harmful, strict=True)),
        harmful=sum(harmful),
        grounded=sum(is_grounded(fact, conversation.text) for fact in made.facts),
        tokens=made.tokens,
        calls=made.calls,
        failures=bool(made.failure),
    )


def form(conversation: Conversation, environment: dict[str, str]) -> Extraction:
    """Form memory of a conversation with edenmem's command line, and read its facts."""
    with tempfile.TemporaryDirectory(prefix="edenmem-extracting-") as folder:
        record = msgspec.to_builtins(conversation)
        for key in ("expected", "never", "language", "kind"):
            del record[key]
        source = Path(folder) / "session.jsonl"
        source.write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
        run = _Command(os.environ | environment | {"EDENMEM_URI": f"sqlite:///{folder}/memory.db"})
        run("init", "--yes")
        run("import", str(source), "--add-missing", "--owner", conversation.users[0])
        run("agent", "set", conversation.agent, "--user-memory", "--agent-memory")
        done = run(
            "form", conversation.session, "--no-consolidate", "--format", "json", check=False
        )
        reports = json.loads(done.stdout) if done.stdout.strip() else []
        usage = [call for each in _objects(reports) for call in each.get("usage", ())]
        facts = {}
        for user in conversation.users:  # facts of a user are listed only with --user
            words = ("--agent", conversation.agent, "--user", user, "-n", "0", "--format", "json")
            listed = json.loads(run("fact", "list", *words).stdout)
            facts |= {fact["id"]: fact["content"] for fact in listed}
        return Extraction(
            facts=list(facts.values()),
            tokens=sum(each["input_tokens"] + each["output_tokens"] for each in usage),
            calls=len(usage),
            failure=done.stderr.strip() if done.returncode else "",
        )


class _Command:
    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment

    def __call__(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "edenmem", *words],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if check and done.returncode:
            raise SystemExit(f"edenmem {' '.join(words)}: {done.stderr.strip()}")
        return done


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for each in value:
            yield from _objects(each)
    elif isinstance(value, dict):
        yield value


def ask(
    conversation: Conversation, prompt: str, client: OpenAI, model: str, max_tokens: int
) -> Extraction:
    """Send another system's prompt and the conversation to a model."""
    try:
        reply = _complete(client, model, prompt, conversation, max_tokens)
    except OpenAIError as error:
        return Extraction([], 0, 1, f"{type(error).__name__}: {error}")
    tokens = reply.usage.total_tokens if reply.usage else 0
    try:
        answer = json.loads(_FENCE.sub("", reply.choices[0].message.content or ""))
    except ValueError:
        return Extraction([], tokens, 1, "the answer is no JSON")
    return Extraction(list(_strings(answer)), tokens, 1)


def _complete(
    client: OpenAI, model: str, prompt: str, conversation: Conversation, max_tokens: int
) -> Any:
    return client.chat.completions.create(
        model=model,
        temperature=0,
        messages=[
            {"role": "system", "content": prompt},
            {"role": "user", "content": f"Input:\n{conversation.text}"},
        ],
        response_format={"type": "json_object"},
        max_tokens=max_tokens,
    )


def _strings(value: Any) -> Iterator[str]:
    """The facts in an answer, whatever its form."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        texts = [value[key] for key in ("content", "fact", "text", "memory") if key in value]
        if texts and isinstance(texts[0], str):
            yield texts[0]
        else:
            for each in value.values():
                if isinstance(each, list | dict):
                    yield from _strings(each)


def table(scores: dict[str, Score]) -> str:
    """All systems, in Markdown."""
    lines = [
        "| | facts | recall | precision | harmful | grounded | tokens | calls | failed |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, each in scores.items():
        cells = (
            str(each.facts),
            _share(each.found, each.expected),
            _share(each.right, each.facts),
            str(each.harmful),
            _share(each.grounded, each.facts),
            f"{each.tokens:,}",
            str(each.calls),
            str(each.failures),
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(hits: int, of: int) -> str:
    low, high = wilson(hits, of)
    return f"{hits / of:.2f} ({low:.2f} to {high:.2f})" if of else "none"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; progress goes to stderr."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.extracting",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base-url", required=True, help="such as http://127.0.0.1:8080/v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for one call")
    parser.add_argument(
        "--max-output-tokens", type=int, default=2_000, metavar="N", help="limit of one answer"
    )
    parser.add_argument(
        "--prompt", action="append", default=[], metavar="NAME=FILE", help="another system's"
    )
    parser.add_argument("--only", action="append", default=[], metavar="SESSION")
    parser.add_argument("--without-acceptance", action="store_true", help="also with no rule on")
    parser.add_argument("--facts", type=Path, help="add what was extracted to this file")
    options = parser.parse_args(arguments)
    conversations = [
        each for each in read_conversations() if not options.only or each.session in options.only
    ]
    environment = {
        "EDENMEM_LLM_PROVIDER": "openai",
        "EDENMEM_LLM_BASE_URL": options.base_url,
        "EDENMEM_LLM_API_KEY": os.environ.get("OPENAI_API_KEY", "none"),
        "EDENMEM_LLM_FAST_MODEL": options.model,
        "EDENMEM_LLM_SLOW_MODEL": options.model,
        "EDENMEM_LLM_PREMIUM_MODEL": options.model,
        "EDENMEM_LLM_TIMEOUT_SECONDS": str(options.timeout),
        "EDENMEM_LLM_MAX_OUTPUT_TOKENS": str(options.max_output_tokens),
        "EDENMEM_EMBEDDING_PROVIDER": "none",
        "EDENMEM_FORMATION_DEDUP": "false",
    }
    client = OpenAI(
        base_url=options.base_url,
        api_key=environment["EDENMEM_LLM_API_KEY"],
        timeout=options.timeout,
    )
    prompts = {
        name: Path(file).read_text(encoding="utf-8")
        for name, _, file in (each.partition("=") for each in options.prompt)
    }
    systems: dict[str, Any] = {"edenmem": lambda each: form(each, environment)}
    if options.without_acceptance:
        bare = environment | {"EDENMEM_FORMATION_CHECK": "false"}
        systems["edenmem, no rules"] = lambda each: form(each, bare)
    for name, prompt in prompts.items():
        systems[name] = lambda each, prompt=prompt: ask(
            each, prompt, client, options.model, options.max_output_tokens
        )
    scores = dict.fromkeys(systems, Score())
    done = 0
    with contextlib.suppress(KeyboardInterrupt):  # the table of what was measured until then
        for conversation in conversations:
            for name, system in systems.items():
                made = system(conversation)
                scores[name] = scores[name].plus(score(conversation, made))
                sys.stderr.write(f"{conversation.session}, {name}: {len(made.facts)} facts")
                sys.stderr.write(f"; {made.failure}\n" if made.failure else "\n")
                if options.facts:
                    line = {"session": conversation.session, "system": name, **made._asdict()}
                    with options.facts.open("a", encoding="utf-8") as written:
                        written.write(json.dumps(line, ensure_ascii=False) + "\n")
            done += 1
    sys.stdout.write(f"{done} conversations, {options.model}\n\n{table(scores)}\n")


if __name__ == "__main__":
    main()
