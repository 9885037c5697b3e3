"""``edenmem init|demo``: create the store, and an example of one."""

from __future__ import annotations

import os
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.commands.index import summarize_steps
from edenmem.cli.terminal.output import show_progress
from edenmem.cli.terminal.prompts import ask_text, person_is_there
from edenmem.engine.factory import store_uri
from edenmem.errors import (
    ConfigError,
    ConflictError,
    NotFoundError,
    ProviderError,
    ProviderMisconfigured,
)
from edenmem.models.indexes import INDEX_STEP, Preparation
from edenmem.settings.keys import format_value
from edenmem.settings.load import load_settings
from edenmem.settings.paths import open_private, sqlite_path
from edenmem.text import many, printable

if TYPE_CHECKING:
    from edenmem.engine.history.reader import FactWhy
    from edenmem.engine.service import MemoryService


def init(
    run: Invocation,
    yes: options.Yes = False,
    write_config: Annotated[
        bool,
        typer.Option("--write-config", help="Also write ./edenmem.toml with the URI of the store."),
    ] = False,
    dry_run: options.DryRun = False,
) -> None:
    """Create the store, or any missing parts of it. Safe to run again.

    Existing indexes of the platform are reported and left unchanged.

    \b
    edenmem init --dry-run
    edenmem init --yes                  (a file in your data folder)
    edenmem init --uri sqlite:///memory.db --write-config
    EDENMEM_URI=mongodb://localhost/eden edenmem init --yes
    """
    if not yes and person_is_there() and run.loaded.origins["store.uri"] == "default":
        default = run.service.setup.location
        what = "store (a SQLite file or a mongodb:// URI)"
        answer = ask_text(what, "--uri", default=default)
        if answer != default:
            run.move_to(answer)
    setup = run.service.setup
    location, plan = setup.location, setup.plan()
    run.out.notes(plan.notes)
    _print_vectors(run)
    if dry_run:
        _print_preparation(run, location, plan, made=None)
        return
    target = Path("edenmem.toml")
    uri = store_uri(run.settings)
    is_written = write_config and target.exists()
    if is_written and _uri_in(target) != uri:
        raise ConflictError(f"{target.absolute()} exists already", hint="add the URI to it by hand")
    if plan.steps:
        question = _question(plan, location)
        run.confirm(question, yes=yes, can_look=False, otherwise="nothing was created")
    made = setup.make()
    if is_written:
        run.out.note(f"file exists: {target.absolute()}")
    elif write_config:
        _write(target, uri)
        made.append(str(target.absolute()))
    if write_config:
        run.uri = None  # the next commands need no --uri
    if setup.lacks_search_indexes():
        run.out.note("search needs its indexes: create them with 'edenmem index create'")
    _print_preparation(run, location, setup.plan(), made=made)
    if target.exists():
        _warn_overridden(run, target)
    if next(iter(run.service.host.agents()), None) is None:
        run.out.note(
            "next: add an agent with 'edenmem agent add NAME', or import conversations with"
            " 'edenmem import FILE --add-missing'"
        )


def _print_preparation(
    run: Invocation, location: str, plan: Preparation, *, made: list[str] | None
) -> None:
    """Print what was created, or would be (``made`` None), and then the warnings."""
    out, steps = run.out, list(plan.steps) if made is None else made
    embeddings = run.service.embeddings.describe_destination()
    data = {
        "location": location,
        "embeddings": embeddings,
        "would_make" if made is None else "made": steps,
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
    }
    if not out.data([data], dict):
        out.safe(f"store: {location}\nembeddings: {embeddings}")
        verb = "would create" if made is None else "created"
        for line in summarize_steps(steps):
            out.paragraph("  ", f"{verb} {line}", indent=4)
        if any(INDEX_STEP in step for step in steps):
            out.line("  (--format json names each index)")
        if not steps:
            out.line("  nothing to create")
    out.notes(plan.warnings)


def _question(plan: Preparation, location: str) -> str:
    """Return the question to ask before anything is created."""
    count = sum(INDEX_STEP in step for step in plan.steps)
    if not count:
        return f"Create the store in {location}?"
    return (
        f"Create {many(count, 'index', 'indexes')} in {location}? Building them on "
        "a large messages collection puts load on the server; 'edenmem init --dry-run' lists them."
    )


def _print_vectors(run: Invocation) -> None:
    """Warn if the platform searches by another embedding model than the configured one, or if
    that one does not know the language of the facts."""

    with suppress(ConfigError, ProviderMisconfigured):  # commands that need the model report it
        advice = run.with_models(
            lambda service: (
                service.embeddings.platform_advice(),
                service.embeddings.language_advice() if service.setup.is_made else "",
            )
        )
        run.out.notes(advice)


def _uri_in(target: Path) -> str:
    """Return the URI that the file names by itself, "" for none."""
    return load_settings(config=target, environ={}).settings.store.uri


def _warn_overridden(run: Invocation, target: Path) -> None:
    """Warn if later commands will not use the store that the file names."""
    variable = os.environ.get("EDENMEM_URI")
    named = _uri_in(target)
    if not variable or not named:
        return
    in_force = load_settings(config=target, environ={"EDENMEM_URI": variable}).settings.store.uri
    if in_force != named:
        run.out.note(
            f"warning: EDENMEM_URI is set and overrides the store.uri of {target.absolute()}"
        )


def _write(target: Path, uri: str) -> None:
    """Write the configuration, for its owner alone: a URI may hold a password.

    A file next to the configuration gets a relative URI, so that the folder can be moved or copied.
    """
    folder = target.absolute().parent
    path = sqlite_path(uri, folder)
    if path is not None and path.is_relative_to(folder):
        uri = f"sqlite:///{path.relative_to(folder)}"
    handle = open_private(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f"[store]\nuri = {format_value(uri)}\n")


# -- demo ----------------------------------------------------------------------------------------

#: Paths in a wheel and in a checkout.
_PLACES = ("_examples/community", "../examples/community")
_AGENT = "mira"
_QUERY = "what does the insurance cost?"
_CORRECTION = "Insurance of the Lantern Walk 2026 costs 830 euros with Nordkust Mutual."
#: Width of the left column.
_MARGIN = 11


def demo(
    run: Invocation,
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
    package = Path(__file__).resolve().parents[2]
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
