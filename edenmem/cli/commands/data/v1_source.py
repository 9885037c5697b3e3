"""Opening the v1 source: options shared by the commands that read it."""

from __future__ import annotations

import glob
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.progress import show_progress
from edenmem.cli.terminal.prompts import ask_choice, person_is_there
from edenmem.errors import AmbiguousInput, NotFoundError
from edenmem.settings.paths import format_path, is_mongodb

if TYPE_CHECKING:
    from edenmem.engine.migration.source import StagedPlan
    from edenmem.models.v1 import V1Options

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URI|FOLDER|FILE",
        help="Source: MongoDB URI, mongodump folder, or Extended JSON or BSON file."
        "  [default: the configured MongoDB]",
    ),
]


Database = Annotated[
    str | None,
    typer.Option("--database", metavar="NAME", help="Database, if --from contains several."),
]

Files = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        metavar="PATTERN",
        help="File name pattern, such as '*.bson', if a collection has several files (repeatable).",
    ),
]

AllowIncomplete = Annotated[
    bool,
    typer.Option(
        "--allow-incomplete",
        help="Exit 0 even if part of the input is missing or unreadable.",
    ),
]

_SOURCES = (
    "--from takes a MongoDB URI, the folder of a database in a mongodump,"
    " or an Extended JSON or BSON file"
)

#: Option that resolves an ambiguous source → question.
_QUESTIONS = {"--database": "database", "--file": "file"}


def chosen_files(database: str | None, files: list[str] | None) -> dict[str, Any]:
    """Return the choices as fields of `V1Options`, in a form that the ledger can store."""
    return {
        "database": format_path(database or ""),
        "files": tuple(format_path(pattern) for pattern in files or ()),
    }


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, to update the ledger and remove temporary files."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set signal handlers
        return
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def open_plan(run: Invocation, source: str | None, v1_options: V1Options) -> Iterator[StagedPlan]:
    """Yield the plan for a source, asking about ambiguous input on a terminal."""
    while True:
        try:
            plan = _open(run, source, v1_options)
            break
        except AmbiguousInput as error:
            if not person_is_there():
                raise
            v1_options = _ask(error, v1_options)
    with plan:
        yield plan


def _ask(error: AmbiguousInput, v1_options: V1Options) -> V1Options:
    """Ask about ambiguous input, and return the options with the answer."""
    import msgspec

    choices = [(choice, choice) for choice in error.choices]
    answer = ask_choice(_QUESTIONS[error.option], error.option, choices)
    if error.option == "--database":
        return msgspec.structs.replace(v1_options, database=answer)
    return msgspec.structs.replace(v1_options, files=(*v1_options.files, glob.escape(answer)))


def _open(run: Invocation, source: str | None, v1_options: V1Options) -> StagedPlan:
    if source is not None and not is_mongodb(source):
        source = str(Path(source).expanduser().absolute())  # independent of the working folder
    try:
        with show_progress(run.out) as progress:
            return run.service.migrations.open_source(
                source,
                v1_options,
                progress=lambda done, total: progress.step("reading", done, total),
            )
    except NotFoundError as error:
        if source is not None and not error.hint:
            error.add_hint(_SOURCES)
        raise
