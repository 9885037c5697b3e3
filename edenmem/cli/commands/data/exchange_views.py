"""Views of exports, backups and imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edenmem.cli.app.failures import print_error
from edenmem.cli.app.views import count_noun
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.files import file_name
from edenmem.cli.terminal.tables import Column
from edenmem.errors import line_place
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.cli.app.invocation import Invocation
    from edenmem.engine.exchange.exporter import BackupReport, ExportReport
    from edenmem.engine.exchange.importer import RestoreReport
    from edenmem.engine.reports import ImportReport

#: Outcomes of records, in the order of the columns.
_WORDS = ("added", "replaced", "same", "differs", "kept", "refused", "left out")
_SHOWN = 10


def print_export(run: Invocation, report: ExportReport, target: str) -> None:
    """Print an export; on stderr if the file went to stdout."""
    for table, detail in report.lost:
        print_error(f"not salvaged: {table}: {detail}", None)
    for what, reason in report.problems[:_SHOWN]:
        print_error(f"skipped {what}: {reason}", None)
    if len(report.problems) > _SHOWN:
        print_error(f"skipped {len(report.problems) - _SHOWN:,} more", None)
    total = many(report.records, "record")
    parts = ", ".join(count_noun(kind, count) for kind, count in report.counts.items())
    if target == "-":
        run.out.note(f"{total}: {parts}" if parts else total)
        return
    run.out.safe(f"wrote {total} to {target}")
    if parts:
        run.out.paragraph("  ", parts)


def print_backup(run: Invocation, report: BackupReport) -> None:
    """Print a backup, and removed and damaged older backups."""
    print_export(run, report.export, str(report.path))
    run.out.note("checksums verified")
    for path in report.removed:
        run.out.safe(f"removed {path}")
    if report.export.problems:
        print_error(
            "older backups were kept, since records are missing from this one",
            "run 'edenmem doctor'",
        )
    if report.former:
        print_error(
            f"kept {many(report.former, 'backup')} of another database",
            "remove them by hand if they are obsolete",
        )
    for path, reason in report.damaged:
        print_error(f"kept {path}: {reason}", "check the file and remove it by hand")


def print_import(run: Invocation, report: RestoreReport, file: str) -> None:
    """Print the outcomes of an import; problems and differences go to stderr."""
    rows = list(report.counts.items())
    used = [w for w in _WORDS if any(counts.get(w) for _, counts in rows)]
    problems = [{"line": line, "reason": reason} for line, reason in report.problems]
    run.out.report(
        [report],
        lambda: run.out.listing(
            rows,
            _columns(used),
            empty="no valid lines" if report.failed else "the file is empty",
        ),
        data=lambda one: to_data(one) | {"problems": problems},
    )
    if rows and not report.failed and set(used) == {"same"}:
        total = sum(counts["same"] for _, counts in rows)
        exist = "1 record exists" if total == 1 else f"all {total:,} records exist"
        run.out.note(f"nothing to import: {exist} already")
    if report.damage:
        print_error(f"the file is damaged: {report.damage}", None)
    for line, reason in report.problems[:_SHOWN]:
        problem = f"{line_place(line, file, report.unit)}: {reason}"
        if problem != report.damage:
            print_error(problem, None)
    if report.failed > _SHOWN:
        print_error(f"{many(report.failed - _SHOWN, 'more line')} could not be imported", None)
    for conflict in report.conflicts[:_SHOWN]:
        place = line_place(conflict.line, file, report.unit)
        print_error(f"{place}: {conflict.type} {conflict.id}: {conflict.detail}", None)
    if report.differing:
        more = f" ({report.differing - _SHOWN:,} more)" if report.differing > _SHOWN else ""
        print_error(
            f"kept stored versions of records that differ: {report.differing:,}{more}",
            "use --on-conflict replace for the versions of the file; replaced ones stay in history",
        )
    for reason, count in report.vectors_left_out.items():
        run.out.note(f"skipped {many(count, 'vector')}: {reason}")
    if report.without_vector:
        run.out.note(
            f"{many(report.without_vector, 'fact')} without a vector: run 'edenmem embed backfill'"
        )
    if report.run_id and not report.dry_run:
        run.out.note(f"to undo this run: edenmem undo --run {report.run_id}")


def print_sessions(
    run: Invocation, report: ImportReport, file: str, *, dry_run: bool = False
) -> None:
    """Print the result of an import; invalid lines go to stderr."""
    for number, problem in report.problems:
        run.out.note(f"{line_place(number, file_name(file))}: {problem}")
    if kept := report.owners_kept:
        run.out.note(f"owners of {many(kept, 'existing session')} left unchanged")

    def show() -> None:
        run.out.line(
            f"{'would import' if dry_run else 'imported'} {report.new_sessions} of "
            f"{many(report.sessions, 'session')}, {report.new_messages} of"
            f" {many(report.messages, 'message')}"
        )
        for what, added in (("agents", report.agents_added), ("users", report.users_added)):
            if added:
                run.out.fields([(f"  {what} added", list(added))])

    run.out.report([report], show, data=lambda one: to_data(one) | {"dry_run": dry_run})
    if report.new_messages and not dry_run:
        run.out.note("next: form memories from them with 'edenmem cold run'")


def _columns(words: list[str]) -> list[Column[tuple[str, dict[str, int]]]]:
    def count(word: str) -> Callable[[tuple[str, dict[str, int]]], int]:
        return lambda row: row[1].get(word, 0)

    return [
        Column("type", lambda row: row[0]),
        *(Column(word, count(word), "number") for word in words),
    ]
