"""``edenmem log``: the audit log, and its seals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.tables import Column
from edenmem.engine.history.descriptions import action_words, document_lines, summarize_entry
from edenmem.models.changes import AuditEntry
from edenmem.text import iso, many

if TYPE_CHECKING:
    from edenmem.engine.seals.sealer import Problem, Verification

#: Minimum width for the columns of commands and runs.
_WIDE = 130


app = group("List changes of memory (log alone), seal the log, and verify its seals.")


@app.command("list", cls=Command)
def log(
    run: Invocation,
    named: options.OneScope,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="ID", help="Only changes of this fact, reflection or other target."
        ),
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option("--actor", metavar="NAME", help="Only changes by this user or worker."),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--command", metavar="WORDS", help="Only changes by this command, such as 'fact add'."
        ),
    ] = None,
    run_id: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="Only changes of this run of a command."),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = 20,
) -> None:
    """List changes of memory, newest first. 'show ENTRY' shows one in full.

    \b
    edenmem log --agent mira --user lena --since 7d
    edenmem log list --since 1h
    edenmem log --target 65f3a1
    """
    begin, end = options.period(since, until)
    one_scope = any((named.kind, named.user, named.group, named.shard, named.session))
    scope = options.choose_scope(run, named) if one_scope else None
    find_id = run.service.history.find_id
    entries = run.service.history.entries(
        agent_id=None if one_scope else options.agent_id_of(run, named.agent),
        scope=scope,
        target_id=find_id("target", target) if target is not None else None,
        run_id=find_id("run", run_id) if run_id is not None else None,
        actor=actor,
        command=command,
        since=begin,
        until=end,
        limit=options.fetch(limit),
    )
    run.out.listing(
        entries,
        log_columns(run),
        limit=limit,
        empty="no changes",
        header=AuditEntry,
        order="newest",
    )


_SealFile = Annotated[
    str | None,
    typer.Option("--file", metavar="FILE", help="File of seals.  [default: backup.seal_file]"),
]


@app.command("seal", cls=Command)
def seal(run: Invocation, file: _SealFile = None) -> None:
    """Seal the entries of the log that are in no seal yet.

    A seal chains hashes of the entries to the last seal, in the store and in the file of seals.
    'edenmem backup' and 'edenmem forget' seal the log too. Keep the file out of reach of
    everyone who can change the database.

    \b
    edenmem log seal --file /mnt/notary/seals.jsonl
    """
    report = run.service.seals.seal(file)
    last = report.last
    run.out.record(
        report,
        [
            ("sealed now", many(report.entries, "entry", "entries")),
            ("sealed", many(report.sealed, "entry", "entries")),
            ("last seal", last and f"{last.number} of {last.at}"),
            ("hash", last and last.hash),
            ("file", report.file and f"{report.file} ({report.written:,} new)"),
        ],
    )
    if not report.file:
        run.out.note("without --file or backup.seal_file, seals can be replaced with the database")


@app.command("verify", cls=Command)
def verify(
    run: Invocation,
    file: _SealFile = None,
    receipt: Annotated[
        str | None,
        typer.Option(
            "--receipt",
            metavar="RECEIPT",
            help="Check only this receipt of 'forget', without the store.",
        ),
    ] = None,
    accept_restore: Annotated[
        str | None,
        typer.Option(
            "--accept-restore",
            metavar="SEAL",
            help="Accept that the store was restored from a backup of this seal.",
        ),
    ] = None,
) -> None:
    """Compare the log with its seals.

    Also compares the seals with the file of seals. Exits with 1 if anything was changed.

    \b
    edenmem log verify --file /mnt/notary/seals.jsonl
    edenmem log verify --accept-restore 12
    edenmem log verify --receipt lena.json
    """
    if receipt is not None:
        from edenmem.engine.seals.hashes import check_receipt

        checked = check_receipt(receipt, run.settings.backup.seal_file if file is None else file)
        run.out.record(
            checked,
            [
                ("receipt", checked.id),
                ("sealed", f"seal {checked.seal} of {checked.at}" if checked.seal else None),
                ("file", checked.file or "not compared with a file of seals"),
                ("problem", checked.problem or "none"),
            ],
        )
        end_if(checked.problem)
        return
    if accept_restore is not None:
        run.service.seals.accept_restore(accept_restore, file)
    found = run.service.seals.verify(file)
    if not run.out.datum(found):
        _show_verification(run, found)
    end_if(found.problems)


#: Maximum number of late entries to print.
_SHOWN = 5

_PROBLEMS: Sequence[Column[Problem]] = (
    Column("seal", lambda problem: problem.seal, "number"),
    Column("entry", lambda problem: problem.entry, "id"),
    Column("problem", lambda problem: problem.what, "text"),
)


def _show_verification(run: Invocation, found: Verification) -> None:
    last, out = found.last, run.out
    out.fields(
        [
            ("seals", f"{found.seals:,}"),
            ("sealed", many(found.sealed, "entry", "entries")),
            ("not sealed yet", many(found.unsealed, "entry", "entries")),
            ("last seal", last and f"{last.number} of {last.at}"),
            ("hash", last and last.hash),
            ("file", found.file),
            ("problems", f"{len(found.problems):,}" if found.problems else "none"),
        ]
    )
    if found.unwritten:
        out.note(f"{many(found.unwritten, 'seal')} not in the file yet: run 'edenmem log seal'")
    if found.late:
        ids = ", ".join(found.late[:_SHOWN]) + (", …" if len(found.late) > _SHOWN else "")
        out.paragraph(
            "late: ",
            f"{many(len(found.late), 'entry', 'entries')} older than the seal before: committed"
            f" late, imported, or inserted ({ids})",
        )
    entries = [each for each in found.problems if each.entry]
    if entries:
        out.line()
        out.listing(entries, _PROBLEMS)
    for problem in found.problems:
        if not problem.entry:
            out.line()
            out.paragraph(f"seal {problem.seal}: ", problem.what)


def show_entry(run: Invocation, entry: AuditEntry) -> None:
    """Show a change in full."""
    undone_by = run.service.history.undone_by(entry)
    if run.out.datum(entry, lambda one: to_data(one) | {"undone_by": undone_by}):
        return
    actor = entry.actor
    run.out.fields(
        [
            ("entry", entry.id),
            ("when", iso(entry.at)),
            ("who", f"{actor.name} on {actor.host}"),
            ("command", actor.command),
            ("run", actor.run_id),
            ("what", f"{action_words(entry)} {entry.target_id}"),
            ("where", where(run, entry)),
            ("why", entry.reason),
            ("undoes", entry.undoes),
            ("undone by", undone_by),
            ("status", entry.status if entry.status != "done" else ""),
        ]
    )
    show_change(run, entry.before, entry.after, to_stdout=True)


# -- views, also of an undo ----------------------------------------------------------------------


def show_change(
    run: Invocation,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    *,
    to_stdout: bool,
    old: str = "before",
    new: str = "after",
) -> None:
    """Print a change of a document as a diff, colored on a terminal."""
    then, now = ("\n".join(document_lines(each)) for each in (before, after))
    show_diff(run.out, then, now, old=old, new=new, to_stdout=to_stdout)


def where(run: Invocation, entry: AuditEntry) -> str:
    """Return the owner of what an entry changed: ``mira: user lena``."""
    labels = run.service.scopes.labels(list(filter(None, [entry.scope or entry.agent_id])))
    return labels[entry.agent_id] if entry.scope is None else labels.full(entry.scope)


def log_columns(run: Invocation) -> list[Column[AuditEntry]]:
    """Return the columns of a list of changes."""
    columns: list[Column[AuditEntry]] = [
        Column("id", lambda entry: entry.id, "id"),
        Column("when", lambda entry: entry.at, "time"),
        Column("who", lambda entry: entry.actor.name),
        Column("what", action_words),
        Column("where", lambda entry: entry.scope or entry.agent_id, names="full"),
        Column("content", summarize_entry, "text"),
    ]
    if not run.out.is_screen or run.out.width >= _WIDE:  # values for 'undo --run' and --command
        columns[3:3] = [
            # Its words, without options.
            Column(
                "command", lambda e: " ".join(takewhile(str.isalnum, e.actor.command.split()[1:]))
            ),
            Column("run", lambda entry: entry.actor.run_id, "id"),
        ]
    return columns
