"""``edenmem demo``: an end-to-end example on one screen, with the calls of the other commands."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app.invocation import Invocation, end_if, invocation
from edenmem.cli.terminal.progress import show_progress
from edenmem.errors import NotFoundError, ProviderError
from edenmem.text import printable

if TYPE_CHECKING:
    from edenmem.engine.history.reader import FactWhy
    from edenmem.engine.service import MemoryService


#: Paths in a wheel and in a checkout.
_PLACES = ("_examples/community", "../examples/community")
_AGENT = "mira"
_QUERY = "what does the insurance cost?"
_CORRECTION = "Insurance of the Lantern Walk 2026 costs 830 euros with Nordkust Mutual."
#: Width of the left column.
_MARGIN = 11


def demo(
    ctx: typer.Context,
    live: Annotated[
        bool, typer.Option("--live", help="Use the configured model instead of scripted answers.")
    ] = False,
) -> None:
    """Form, find, explain, correct and undo a memory in an example.

    Imports the conversations of a small fictional community into a SQLite file in a new temporary
    folder, and forms memory from them. Answers of the language model are scripted, and nothing
    leaves this machine, unless --live is given.

    \b
    edenmem demo
    edenmem demo --live
    """
    run = invocation(ctx)
    run.out.people_only()
    example = example_folder()
    file = Path(tempfile.mkdtemp(prefix="edenmem-demo-")) / "memory.db"
    run.move_to(f"sqlite:///{file}")
    if not live:  # call no endpoint
        embeds = run.settings.embedding.provider != "none"
        values = {
            "llm.provider": "replay",
            "llm.replay": str(example / "answers.jsonl"),
            "embedding.provider": "local" if embeds else "none",
            "search.rerank_url": "",
        }
        run.override({key: ("the demo", value) for key, value in values.items()})
    run.service.setup.make()
    with (example / "sessions.jsonl").open("rb") as lines:
        run.service.sessions.import_lines(lines, add_missing=True)
    failed = run.serve(lambda service: _tell(run, service), llm=True)
    uri = shlex.quote(f"sqlite:///{file}")
    _print(run, "Your turn", f"edenmem scope list --uri {uri}", command=True)
    _print(run, "", "edenmem help tour", command=True)
    end_if(failed)


def example_folder() -> Path:
    """Return the folder of the example community.

    Raises:
        NotFoundError: The installation lacks it.
    """
    package = Path(__file__).resolve().parents[3]
    for place in _PLACES:
        folder = (package / place).resolve()
        if (folder / "sessions.jsonl").is_file():
            return folder
    raise NotFoundError("the example community is missing from this installation")


async def _tell(run: Invocation, service: MemoryService) -> int:
    """Run all steps, and return the number of failed formations and consolidations."""
    # Oldest first, as later sessions correct earlier ones.
    sessions = list(run.service.host.sessions())[::-1]
    formed = []
    with show_progress(run.out) as progress:
        for number, session in enumerate(sessions, 1):
            progress.say("forming memory", number, len(sessions))
            formed += await service.form_memories(session.id, consolidate=False)
        progress.say("consolidating")
        written = await service.consolidate_all()
    facts = sum(report.facts_added for report in formed)
    reflections = sum(sum(report.reflections.values()) for report in formed)
    texts = sum(report.outcome == "written" for report in written)
    _print(
        run,
        "Formed",
        f"{len(sessions)} conversations became {facts} facts, {reflections} reflections and"
        f" {texts} texts",
    )
    agent = run.resolver.agent(_AGENT).id
    found = await service.search([_QUERY], agent_id=agent, top_k=1)
    _print(run, "Found", f"edenmem search {shlex.quote(_QUERY)} --agent {_AGENT}", command=True)
    if not found.hits:
        raise ProviderError(
            "the model formed no fact that answers the question", hint="run the demo again"
        )
    fact = found.hits[0].fact
    _print_words(run, fact.content)
    _print_why(run, run.service.history.fact_why(fact.id))
    edited = await service.edit(
        lambda editor: editor.edit_fact(
            fact.id, _CORRECTION, expected_version=fact.version, reason="demo"
        )
    )
    _print(run, "Corrected", f"edenmem fact edit {fact.id} --content '…'", command=True)
    _print_words(run, _CORRECTION)
    assert edited.result is not None
    entry = edited.result.change_id
    run.service.undo.entry(entry, force=False, reason="demo")
    await service.undo.make_vectors(run.service.undo.missing)
    _print(run, "Undone", f"edenmem undo {entry}", command=True)
    _print_words(run, run.service.memory.find_fact(fact.id).content)
    outcomes = [*(report.outcome for report in formed), *(report.outcome for report in written)]
    return outcomes.count("failed")


def _print_why(run: Invocation, why: FactWhy) -> None:
    """Print the latest source of the fact, and the decision of the model."""
    _print(run, "Why", f"edenmem why {why.fact.id}", command=True)
    messages = (why.source, *why.other_sources)[-1].messages
    known = run.service.scopes.labels([each.sender for each in messages if each.sender])
    for message in messages:
        who = message.name or known.get(message.sender or "", message.role)
        _print_words(run, f"{message.created_at:%Y-%m-%d} {who}: {message.content}")
    reasons = [entry.reason for entry in why.changes if entry.reason]
    if reasons:
        _print_words(run, f"→ {reasons[-1]}")


def _print(run: Invocation, word: str, text: str, *, command: bool = False) -> None:
    """Print one step: its label, and a description or the command for it."""
    words = run.out.style(printable(text), "36") if command else printable(text)
    run.out.line(run.out.style(word.ljust(_MARGIN), "1") + words)


def _print_words(run: Invocation, text: str) -> None:
    run.out.paragraph(" " * (_MARGIN + 2), text)
