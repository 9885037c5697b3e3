"""``edenmem demo``: the whole road on an example, by the same calls as the other commands."""

from __future__ import annotations

import contextlib
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from edenmem.cli.app.framework import Command, single
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.commands.people.session import print_import
from edenmem.cli.commands.search.context import print_context
from edenmem.cli.commands.search.search import print_search
from edenmem.cli.commands.work.consolidate import print_consolidations
from edenmem.cli.commands.work.form import form_each, print_formations
from edenmem.errors import ConflictError, ExitCode, NotFoundError

if TYPE_CHECKING:
    from edenmem.engine.service import MemoryService

app = single()

#: In a wheel, and in a checkout.
_PLACES = ("_examples/community", "../examples/community")


class _Search(NamedTuple):
    query: str
    agent: str
    user: str | None = None


_SEARCHES = (
    _Search("what glue do we use for the lanterns?", "mira", "lena"),
    _Search("who pays, and when is it due", "mira", "tomas"),
    _Search("board 17 keeps resetting", "otto", "priya"),
)
_SESSION = "lena-progress"


@app.command(cls=Command)
def demo(
    ctx: typer.Context,
    folder: Annotated[
        str | None, typer.Option("--folder", metavar="DIR", help="Where the new file goes.")
    ] = None,
) -> None:
    """See the whole of it work on an example, in a new file.

    Conversations of a small invented community are imported, memories formed and consolidated,
    three searches run, and the context of one session shown. Without an endpoint the answers are
    scripted: no model is asked.

    \b
    edenmem demo --folder first-look
    """
    run = invocation(ctx)
    run.out.people_only()
    example = example_folder()
    file = _new_file(folder)
    run.move_to(f"sqlite:///{file}")
    if not (run.settings.llm.api_key or run.settings.llm.base_url):
        run.override(
            {"llm.provider": "replay", "llm.replay": str(example / "answers.jsonl")},
        )
    with _chapter(run, f"1. A new store: {file}"):
        run.service.setup.make()
    with (
        _chapter(run, "2. Conversations of a small community"),
        (example / "sessions.jsonl").open("rb") as lines,
    ):
        print_import(run, run.service.sessions.import_lines(lines, add_missing=True))
    failed = run.serve(lambda service: _work(run, service), llm=True)
    _farewell(run, file)
    if failed:
        raise typer.Exit(ExitCode.SOME_FAILED)


def example_folder() -> Path:
    """Where the example community is.

    Raises:
        NotFoundError: this installation came without it.
    """
    package = Path(__file__).resolve().parents[3]
    for place in _PLACES:
        folder = (package / place).resolve()
        if (folder / "sessions.jsonl").is_file():
            return folder
    raise NotFoundError("the example community did not come with this installation")


def _new_file(folder: str | None) -> Path:
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="edenmem-demo-")) / "memory.db"
    path = Path(folder).expanduser().absolute()
    path.mkdir(parents=True, exist_ok=True)
    file = path / "memory.db"
    if file.exists():
        raise ConflictError(f"{file} exists already", hint="name another --folder")
    return file


async def _work(run: Invocation, service: MemoryService) -> bool:
    """Form, consolidate, search, and show a context; whether anything failed."""
    with _chapter(run, "3. Memories are formed"):
        # In the order in which they were held: what is said later corrects what was said before.
        sessions = list(run.service.host.sessions())[::-1]
        formed = await form_each(run, service, sessions, consolidate=False)
        print_formations(run, formed, sessions)
    with _chapter(run, "4. What has gathered is consolidated"):
        written = await service.consolidate_all()
        print_consolidations(run, written, diffs=False)
    for number, (query, agent, user) in enumerate(_SEARCHES, 5):
        with _chapter(run, f"{number}. edenmem {_search_command(query, agent, user)}"):
            found = await service.search(
                [query],
                agent_id=run.resolver.agent(agent).id,
                user_id=run.resolver.user(user).id if user else None,
                top_k=4,
            )
            print_search(run, found)
    with _chapter(run, f"8. edenmem context show {_SESSION}"):
        session = run.resolver.session(_SESSION)
        print_context(run, await service.assemble_context(session.id))
    return any(report.outcome == "failed" for report in formed) or any(
        report.outcome == "failed" for report in written
    )


def _search_command(query: str, agent: str, user: str | None) -> str:
    return f"search {shlex.quote(query)} --agent {agent}" + (f" --user {user}" if user else "")


@contextlib.contextmanager
def _chapter(run: Invocation, title: str) -> Iterator[None]:
    run.out.heading(title)
    yield
    run.out.line()


def _farewell(run: Invocation, file: Path) -> None:
    run.out.heading("Now yours: the same file, your own commands")
    for line in (
        f"export EDENMEM_URI={shlex.quote(f'sqlite:///{file}')}",
        "edenmem status",
        "edenmem scope list",
        "edenmem fact list --agent mira --user lena",
        "edenmem search 'how bright may the whale be' --agent otto --explain",
        "edenmem consolidation show --agent mira --user lena",
        "edenmem context show harbour-lights-second --message 'Is the permit there?' "
        "--recall always",
    ):
        run.out.line(f"  {line}")
