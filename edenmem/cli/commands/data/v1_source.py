"""What the commands that read v1 share: where it is, and opening it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.progress import show_progress
from edenmem.settings.paths import is_mongodb

if TYPE_CHECKING:
    from edenmem.engine.migration.plan import V1Plan
    from edenmem.models.v1 import V1Options

From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="URI|FOLDER|FILE",
        help="Where v1 is: a MongoDB, a folder of mongodump, or an Extended JSON or BSON file;"
        " else the configured MongoDB.",
    ),
]


@contextmanager
def open_plan(run: Invocation, source: str | None, v1_options: V1Options) -> Iterator[V1Plan]:
    """The source, read and laid out."""
    if source is not None and not is_mongodb(source):
        source = str(Path(source).expanduser().absolute())  # the same from wherever it is named
    with show_progress(run.out) as progress:
        plan = run.service.migrations.open_source(
            source,
            v1_options,
            progress=lambda done, total: progress.step("reading", done, total),
        )
    with plan:
        yield plan
