"""``edenmem init``: create the store."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.indexes.index import summarize_steps
from edenmem.cli.terminal.prompts import ask_text, confirm, person_is_there
from edenmem.errors import ConfigError, ConflictError, ProviderMisconfigured
from edenmem.models.indexes import INDEX_STEP, Preparation

if TYPE_CHECKING:
    from edenmem.engine.service import MemoryService


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
    from edenmem.engine.factory import store_uri

    run = invocation(ctx)
    if not yes and person_is_there() and run.loaded.origins["store.uri"] == "default":
        _ask_where(run)
    setup = run.service.setup
    location, plan = setup.location, setup.plan()
    for note in plan.notes:
        run.out.note(note)
    _print_vectors(run)
    if dry_run:
        _print_preparation(run, location, plan, made=None)
        return
    target = Path("edenmem.toml")
    is_written = write_config and _is_written(target, store_uri(run.settings))
    if plan.steps and not confirm(_question(plan, location), yes=yes, can_look=False):
        run.out.note("nothing was created")
        return
    made = setup.make()
    if is_written:
        run.out.note(f"file exists: {target.absolute()}")
    elif write_config:
        _write(target, store_uri(run.settings))
        made.append(str(target.absolute()))
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
    steps = list(plan.steps) if made is None else made

    embeddings = run.service.embeddings.describe_destination()

    def show() -> None:
        run.out.safe(f"store: {location}")
        run.out.safe(f"embeddings: {embeddings}")
        verb = "would create" if made is None else "created"
        for line in summarize_steps(steps):
            run.out.paragraph("  ", f"{verb} {line}", indent=4)
        if any(INDEX_STEP in step for step in steps):
            run.out.line("  (--format json names each index)")
        if not steps:
            run.out.line("  nothing to create")

    key = "would_make" if made is None else "made"
    notes = {"warnings": list(plan.warnings), "notes": list(plan.notes)}
    run.out.report(
        [{"location": location, "embeddings": embeddings, key: steps, **notes}], show, data=dict
    )
    for warning in plan.warnings:
        run.out.note(warning)


def _question(plan: Preparation, location: str) -> str:
    """Return the question to ask before anything is created."""
    count = sum(INDEX_STEP in step for step in plan.steps)
    if not count:
        return f"Create the store in {location}?"
    return (
        f"Create {count} {'index' if count == 1 else 'indexes'} in {location}? Building them on "
        "a large messages collection puts load on the server; 'edenmem init --dry-run' lists them."
    )


def _print_vectors(run: Invocation) -> None:
    """Warn if the platform searches by another embedding model than the configured one, or if
    that one does not know the language of the facts."""

    async def advise(service: MemoryService) -> list[str]:
        advice = [service.embeddings.platform_advice()]
        if service.setup.is_made:
            advice.append(service.embeddings.language_advice())
        return advice

    with suppress(ConfigError, ProviderMisconfigured):  # commands that need the model report it
        for advice in filter(None, run.serve(advise)):
            run.out.note(advice)


def _ask_where(run: Invocation) -> None:
    default = run.service.setup.location
    answer = ask_text("store (a SQLite file or a mongodb:// URI)", "--uri", default=default)
    if answer != default:
        run.move_to(answer)


def _is_written(target: Path, uri: str) -> bool:
    """Report whether the file is there and names this store.

    Raises:
        ConflictError: it names another, or none.
    """
    if not target.exists():
        return False
    if _uri_in(target) != uri:
        raise ConflictError(f"{target.absolute()} exists already", hint="add the URI to it by hand")
    return True


def _uri_in(target: Path) -> str:
    """Return the URI that the file names by itself, "" for none."""
    from edenmem.settings.load import load_settings

    return load_settings(config=target, environ={}).settings.store.uri


def _warn_overridden(run: Invocation, target: Path) -> None:
    """Warn if later commands will not use the store that the file names."""
    from edenmem.settings.load import load_settings

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
    from edenmem.settings.keys import format_value
    from edenmem.settings.paths import open_private, sqlite_path

    folder = target.absolute().parent
    path = sqlite_path(uri, folder)
    if path is not None and path.is_relative_to(folder):
        uri = f"sqlite:///{path.relative_to(folder)}"
    handle = open_private(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(f"[store]\nuri = {format_value(uri)}\n")
