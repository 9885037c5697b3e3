"""``edenmem init|config|demo``: the store, its settings, and an example."""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.parameters import suggest
from edenmem.cli.commands.index import summarize_steps
from edenmem.cli.terminal.output import show_progress
from edenmem.cli.terminal.prompts import ask_text, person_is_there
from edenmem.cli.terminal.tables import Column
from edenmem.engine.factory import store_uri
from edenmem.errors import (
    ConfigError,
    ConflictError,
    NotFoundError,
    ProviderError,
    ProviderMisconfigured,
    StoreError,
    UsageError,
)
from edenmem.models.indexes import INDEX_STEP, Preparation
from edenmem.settings.keys import (
    format_value,
    leaves,
)
from edenmem.settings.load import Setting, edit_setting, effective, load_settings, masked
from edenmem.settings.paths import (
    FILE_NAME,
    has_password,
    sqlite_path,
    user_config_file,
)
from edenmem.settings.schema import DEFAULTS, SECRETS
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
    with suppress(ConfigError, ProviderMisconfigured):  # commands that need the model report it
        advice = run.with_models(
            lambda service: (
                service.embeddings.platform_advice(),
                service.embeddings.language_advice() if service.setup.is_made else "",
            )
        )
        run.out.notes(advice)
    if dry_run:
        _print_preparation(run, location, plan, made=None)
        return
    target = Path(FILE_NAME).absolute()
    uri, named = store_uri(run.settings), _uri_in(target)
    if write_config and named not in ("", uri):
        raise ConflictError(
            f"{target} exists already, and names another store",
            hint="change it with 'edenmem config set store.uri --here'",
        )
    if plan.steps:
        question = f"Create the store in {location}?"
        if count := sum(INDEX_STEP in step for step in plan.steps):
            question = (
                f"Create {many(count, 'index', 'indexes')} in {location}? Building them on a large"
                " messages collection puts load on the server; 'edenmem init --dry-run' lists them."
            )
        run.confirm(question, yes=yes, can_look=False, otherwise="nothing was created")
    made = setup.make()
    if write_config:
        run.uri = None  # the next commands need no --uri
        if named:
            run.out.note(f"file exists: {target}")
        else:
            edit_setting(target, "store.uri", _portable(uri, target.parent))
            made.append(str(target))
    if setup.lacks_search_indexes():
        run.out.note("search needs its indexes: create them with 'edenmem index create'")
    _print_preparation(run, location, setup.plan(), made=made)
    has_agents = next(iter(run.service.host.agents()), None) is not None
    run.reload()
    is_overridden = run.loaded.origins["store.uri"] == "EDENMEM_URI"
    if is_overridden and _uri_in(target) not in ("", run.settings.store.uri):
        run.out.note(f"warning: EDENMEM_URI is set and overrides the store.uri of {target}")
    if not has_agents:
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


def _uri_in(target: Path) -> str:
    """Return the URI that a configuration file names by itself, "" for none."""
    if not target.exists():
        return ""
    return load_settings(config=target, environ={}).settings.store.uri


def _portable(uri: str, folder: Path) -> str:
    """Return a URI relative to the folder of its file, so that both can be moved or copied."""
    path = sqlite_path(uri, folder)
    if path is None or not path.is_relative_to(folder):
        return uri
    return f"sqlite:///{path.relative_to(folder)}"


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
        run.service.exchange.import_sessions(lines, add_missing=True)
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
        lambda editor: editor.edit(
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


# -- config --------------------------------------------------------------------------------------

config_app = group("Show settings and their origins, and change them.")


@config_app.command("show", cls=Command)
def show(
    run: Invocation,
    keys: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY]…", help="Only keys with this prefix, such as search or llm.fast."
        ),
    ] = None,
) -> None:
    """Show each setting with its value and origin. Secrets are never shown.

    'edenmem help settings' says what each one means.

    \b
    edenmem config show llm search.top_k
    edenmem config show --format json
    """
    settings = list(effective(run.loaded))
    known = [row.key for row in settings]
    for prefix in keys or ():
        if not any(key.startswith(prefix) for key in known):
            raise NotFoundError(
                f"no such setting: {prefix!r}",
                hint=suggest(prefix, known) or "'edenmem config show' lists all",
            )
    numbers = cache(lambda: _numbers(run))
    rows = [
        _resolve(row, run, numbers)
        for row in settings
        if not keys or row.key.startswith(tuple(keys))
    ]
    if len(rows) == 1 and not run.out.is_data:
        run.out.fields([(column.title, column.value(rows[0])) for column in _COLUMNS])
    else:
        run.out.listing(rows, _COLUMNS, data=Setting._asdict)


@config_app.command("set", cls=Command)
def set_(
    run: Invocation,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Setting, such as search.top_k.")],
    value: Annotated[
        str | None,
        typer.Argument(metavar="[VALUE]", help="New value; - reads it from stdin."),
    ] = None,
    unset: Annotated[bool, typer.Option("--unset", help="Remove the setting.")] = False,
    here: Annotated[
        bool, typer.Option("--here", help="Change ./edenmem.toml, not the user's file.")
    ] = False,
) -> None:
    """Change a setting in the user's edenmem.toml, or in the file of --config.

    With --profile, the setting applies to this profile only. A secret is asked for or
    read from stdin.

    \b
    edenmem config set search.top_k 20
    edenmem config set search.top_k --unset
    edenmem config set llm.api_key - < key.txt
    """
    if unset and value is not None:
        raise UsageError("a value does not apply to --unset")
    named = run.config or os.environ.get("EDENMEM_CONFIG")
    if here and named:
        raise UsageError(f"--here does not apply: the configuration file is {named}")
    path = Path(FILE_NAME).absolute() if here else user_config_file()
    if named:
        path = Path(named).expanduser()
    new = None if unset else _read_value(key, value)
    previous, value_now = edit_setting(path, key, new, profile=run.profile)
    changed = {
        "key": key,
        "value": masked(key, value_now),
        "previous": masked(key, previous),
        "file": str(path.absolute()),
    }
    run.out.record(
        changed,
        [
            (key, format_value(changed["value"]) or "(not set)"),
            ("before", format_value(changed["previous"]) or "(not set)"),
            ("file", changed["file"]),
        ],
        data=dict,
    )
    run.reload()
    origin = run.loaded.origins[key]
    if not unset and str(path.absolute()) not in origin:
        run.out.note(f"warning: {origin} overrides this value")


def _read_value(key: str, value: str | None) -> str:
    """Return the value for a setting: from the command line, from stdin, or by asking.

    Raises:
        UsageError: The value is missing, or is a secret that the process list would show.
    """
    if value == "-":
        return sys.stdin.read().removesuffix("\n")
    if value is None:
        return ask_text(f"value of {key}", "VALUE", is_secret=key in SECRETS)
    if key in SECRETS or has_password(value):
        raise UsageError(
            f"the value of {key} would be visible in the process list",
            hint="leave it out to be asked for it, or use - to read it from stdin",
        )
    return value


def _resolve(
    row: Setting, run: Invocation, numbers: Callable[[], tuple[dict[str, Any], str]]
) -> Setting:
    """Return the row with its effective value if that depends on other settings."""
    key, value, origin = row
    if key == "store.uri" and not value:
        return row._replace(value=store_uri(run.settings))
    if key in DEFAULTS and origin == "default":
        values, reason = numbers()
        return row._replace(value=values.get(key, value), origin=reason or origin)
    if key == "embedding.provider" and value == "auto":
        return row._replace(origin=f"{origin}, {run.service.embeddings.explain_provider()}")
    section, _, name = key.partition(".")
    if section == "search" and value is None:
        values, reason = run.service.embeddings.explain_scale()
        return row._replace(value=values[name], origin=f"{origin}, {reason}")
    return row


def _numbers(run: Invocation) -> tuple[dict[str, Any], str]:
    """Return the defaults for this database, and their origin if it is another than usual.

    They are asked for once: each question to a server that does not answer takes seconds.
    """
    try:
        values = dict(leaves(run.service.scopes.in_database()))
        is_theirs = run.service.scopes.is_beside_platform()
    except StoreError as error:
        return {}, f"default ({error.message})"
    return values, "default, the platform's: it uses this database" if is_theirs else ""


_COLUMNS: list[Column[Setting]] = [
    Column("key", lambda row: row.key, "name"),
    Column("value", lambda row: format_value(row.value), "text"),
    Column("origin", lambda row: row.origin),
]
