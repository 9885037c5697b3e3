"""How exports and imports are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edenmem.cli.app.failures import print_error
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.tables import Column

if TYPE_CHECKING:
    from edenmem.cli.app.invocation import Invocation
    from edenmem.engine.exchange.backups import BackupReport
    from edenmem.engine.exchange.exporter import ExportReport
    from edenmem.engine.exchange.importer import RestoreReport

#: What a record may become, as columns, in this order.
_WORDS = ("added", "replaced", "same", "differs", "kept", "refused", "left out")
_SHOWN = 10


def print_export(run: Invocation, report: ExportReport, target: str) -> None:
    """What was written; on stderr, if the file itself went to stdout."""
    for what, reason in report.problems[:_SHOWN]:
        print_error(f"{what} was left out: {reason}", None)
    if len(report.problems) > _SHOWN:
        print_error(f"{len(report.problems) - _SHOWN:,} more were left out", None)
    total = f"{report.records:,} records"
    parts = ", ".join(f"{kind} {count:,}" for kind, count in report.counts.items())
    if target == "-":
        run.out.note(f"{total}: {parts}" if parts else total)
        return
    run.out.safe(f"wrote {total} to {target}")
    if parts:
        run.out.safe(f"  {parts}")


def print_backup(run: Invocation, report: BackupReport) -> None:
    """Print what was written, removed, and found damaged."""
    print_export(run, report.export, str(report.path))
    run.out.note("verified by its checksums")
    for path in report.removed:
        run.out.safe(f"removed {path}")
    if report.export.problems:
        print_error(
            "no older backup was removed, since records are missing from this one",
            "edenmem doctor",
        )
    if report.former:
        print_error(
            f"backups of a former database at this location were kept: {report.former}",
            "move them away if you do not need them",
        )
    for path, reason in report.damaged:
        print_error(f"{path} was not removed: {reason}", "look at the file, then remove it by hand")


def print_import(run: Invocation, report: RestoreReport) -> None:
    """What became of the records; what could not be had and what differs is told on stderr."""
    rows = list(report.counts.items())
    used = [w for w in _WORDS if any(counts.get(w) for _, counts in rows)]
    problems = [{"line": line, "reason": reason} for line, reason in report.problems]
    run.out.report(
        [report],
        lambda: run.out.listing(rows, _columns(used), empty="there is nothing in the file"),
        data=lambda one: to_data(one) | {"problems": problems},
    )
    if report.damage:
        print_error(f"the file is damaged: {report.damage}", None)
    for line, reason in report.problems[:_SHOWN]:
        print_error(f"{report.unit} {line}: {reason}", None)
    if report.failed > _SHOWN:
        print_error(f"{report.failed - _SHOWN:,} more lines could not be taken", None)
    for conflict in report.conflicts[:_SHOWN]:
        place = f"{report.unit} {conflict.line}"
        print_error(f"{place}: {conflict.type} {conflict.id}: {conflict.detail}", None)
    if report.differing:
        more = f" ({report.differing - _SHOWN:,} more)" if report.differing > _SHOWN else ""
        print_error(
            f"records that differ from what is stored, and were left as they are here:"
            f" {report.differing:,}{more}",
            "--on-conflict replace takes the file's; what it replaces stays in the history",
        )
    for reason, count in report.vectors_left_out.items():
        run.out.note(f"vectors that were left out: {count:,}; {reason}")
    if report.without_vector:
        run.out.note(
            f"facts that came without a vector: {report.without_vector:,};"
            " 'edenmem embed backfill' makes them"
        )
    if report.run_id and not report.dry_run:
        run.out.note(f"run {report.run_id}: 'edenmem undo --run {report.run_id}' takes it back")


def _columns(words: list[str]) -> list[Column[tuple[str, dict[str, int]]]]:
    def count(word: str) -> Callable[[tuple[str, dict[str, int]]], int]:
        return lambda row: row[1].get(word, 0)

    return [
        Column("type", lambda row: row[0]),
        *(Column(word, count(word), "number") for word in words),
    ]
