"""``edenmem init``: create the store."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.indexes.index import summarize_steps
from edenmem.cli.terminal.prompts import ask_text, person_is_there
from edenmem.engine.factory import store_uri
from edenmem.errors import ConfigError, ConflictError, ProviderMisconfigured
from edenmem.models.indexes import INDEX_STEP, Preparation
from edenmem.settings.keys import format_value
from edenmem.settings.load import load_settings
from edenmem.settings.paths import open_private, sqlite_path
from edenmem.text import many


def init(
    ctx: typer.Context,
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
    run = invocation(ctx)
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
