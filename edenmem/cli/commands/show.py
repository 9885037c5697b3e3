"""``edenmem show|why|history|log|browse``: what a reference names, its origin, and its changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import takewhile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import (
    HISTORY,
    origin,
    scope_fields,
    scope_name,
    told_sections,
    usage_line,
)
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.prompts import person_is_there
from edenmem.cli.terminal.tables import Column
from edenmem.engine.history.descriptions import (
    Section,
    action_words,
    document_lines,
    fact_fields,
    fact_sections,
    memory_fields,
    senders_of,
    summarize_entry,
    text_sections,
)
from edenmem.errors import ConfigError, NotFoundError, UsageError
from edenmem.models.changes import AuditEntry
from edenmem.models.formation import Reading
from edenmem.models.memory import Fact, Reflection
from edenmem.models.scope import Scope
from edenmem.models.told import text_key
from edenmem.settings.installation import install_hint
from edenmem.text import iso, many, word_count

if TYPE_CHECKING:
    from edenmem.engine.seals.sealer import Problem, Verification
    from edenmem.engine.service import MemoryService


def show(
    run: Invocation,
    ref: options.Ref,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", "-n", min=0, metavar="N", help="Messages of a session (0 = no limit)."
        ),
    ] = 20,
    vectors: options.Vectors = False,
) -> None:
    """Show a fact, reflection, session, agent, user, log entry, or the text of a scope.

    user:lena names only a user, agent:mira only an agent. mira/user:lena and mira/agent are
    scopes.

    \b
    edenmem show 65a1f0
    edenmem show mira/user:lena
    edenmem show lena-first-visit --limit 0
    """
    target = run.resolver.target(ref, removed=True)
    if target.scope is not None:
        show_text(run, target.scope)
    elif target.kind == "entry":
        show_entry(run, run.service.history.entry(target.id))
    elif target.kind == "fact":
        fact = run.service.memory.find_fact(target.id)
        if vectors:
            fact = run.service.memory.fact(fact.id, with_vector=True) or fact
        _show_memory(run, fact, vectors=vectors)
    elif target.kind == "reflection":
        _show_memory(run, run.resolver.reflection(target.id), vectors=vectors)
    elif target.kind == "session":
        _show_session(run, target.id, limit)
    elif target.kind == "agent":
        _show_agent(run, target.id)
    else:
        _show_user(run, target.id)


def why(
    run: Invocation,
    ref: options.Ref,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", help="Only version N of a text.")
    ] = None,
) -> None:
    """Show the origin of a fact, or of each version of a text, newest first.

    For a fact: its messages, the decision, and what it replaced. Also lists the replies that
    agents gave with the fact or text in their context.

    \b
    edenmem why 65f3a1b2
    edenmem why mira/user:lena --version 3
    """
    target = run.resolver.target(ref, ("fact", "scope"), removed=True)
    history, tellings = run.service.history, run.service.told.tellings
    sections: Iterable[Section]
    if target.scope is None:
        fact = history.fact_why(target.id)
        told = tellings([fact.fact.id])
        data = to_data(fact) | {"told": [to_data(each) for each in told]}
        if run.out.datum(data, dict):
            return
        cost = usage_line(fact.models) if fact.models else ""
        run.out.fields([*fact_fields(fact, scope_name(run, fact.fact.home)), ("cost", cost)])
        sections = fact_sections(fact, run.service.scopes.labels(senders_of(fact)))
    else:
        texts = history.text_why(target.scope, version)
        told = tellings([text_key(target.scope)])
        told = [one for one in told if version in (None, one.version)]
        if run.out.data(
            texts,
            lambda one: (
                to_data(one)
                | {"told": [to_data(each) for each in told if each.version == one.version.version]}
            ),
        ):
            return
        run.out.fields([("where", scope_name(run, texts[0].scope))])
        sections = text_sections(texts)
    for section in (*sections, *told_sections(run, told)):
        run.out.line()
        run.out.paragraph("", section.title, indent=2)
        for lead, text in section.paragraphs:
            run.out.paragraph(lead, text, indent=4)


def history(run: Invocation, ref: options.Ref, limit: options.Limit = 0) -> None:
    """List the versions of a fact or text, oldest first, or the changes of anything else.

    \b
    edenmem history 65a1f0
    edenmem history mira/user:lena
    """
    target = run.resolver.target(
        ref, ("fact", "scope", "reflection", "agent", "user"), removed=True
    )
    if target.scope is not None:
        versions = run.service.history.text_versions(target.scope)
        run.out.listing(versions, HISTORY, limit=limit)
    elif target.kind == "fact":
        versions = run.service.history.fact_versions(target.id)
        run.out.listing(versions, HISTORY, limit=limit, empty="no earlier versions")
    else:
        entries = run.service.history.entries(target_id=target.id, limit=options.fetch(limit))
        run.out.listing(
            entries, log_columns(run), limit=limit, empty="no changes", header=AuditEntry
        )


# -- what is shown of each kind ------------------------------------------------------------------


def _show_memory(run: Invocation, memory: Fact | Reflection, *, vectors: bool) -> None:
    run.out.record(
        memory,
        [("id", memory.id), *scope_fields(run, memory.home), *memory_fields(memory)],
        text=memory.content,
        data=lambda one: to_data(one, vectors=vectors),
    )


def show_text(run: Invocation, scope: Scope) -> None:
    """Show the text of a scope.

    Raises:
        NotFoundError: The scope has no text yet.
    """
    text = run.service.memory.text(scope)
    if text is None:
        raise NotFoundError(
            f"{scope_name(run, scope)} has no text yet",
            hint="create one with 'edenmem consolidate'",
        )
    run.out.record(
        text,
        [
            *scope_fields(run, scope),
            ("version", text.version or "no text yet"),
            ("words", f"{word_count(text.consolidated_content)} of {text.word_limit}"),
            ("pending", len(text.unabsorbed_ids)),
            ("consolidated", text.last_consolidated_at),
            ("updated", text.updated_at),
            *(("fixed", f"{each.text} ({each.by})") for each in text.fixed),
        ],
        text=text.consolidated_content,
    )


def _show_agent(run: Invocation, agent_id: str) -> None:
    agent = run.resolver.agent(agent_id)
    run.out.record(
        agent,
        [
            ("id", agent.id),
            ("username", agent.username),
            ("name", agent.name),
            ("owner", agent.owner),
            ("user memory", "on" if agent.user_memory_enabled else "off"),
            ("agent memory", "on" if agent.agent_memory_enabled else "off"),
            ("created", agent.created_at),
            ("shards", [policy.shard for policy in run.service.host.shards(agent.id)]),
        ],
        text=agent.persona,
    )


def _show_user(run: Invocation, user_id: str) -> None:
    """Show an account, and all accounts of the same person."""
    user = run.resolver.user(user_id)
    person = run.service.host.person(user.id)
    accounts = [{"id": each.id, "username": each.username} for each in person.accounts]
    run.out.record(
        user,
        [
            ("id", user.id),
            ("username", user.username),
            ("same person as", user.eden_user_id),
            ("accounts", list(person.names.values())),
            ("tier", user.subscription_tier),
            ("flags", user.feature_flags),
            ("created", user.created_at),
        ],
        data=lambda one: to_data(one) | {"accounts": accounts},
    )


def _show_session(run: Invocation, session_id: str, limit: int) -> None:
    """Show a session and its newest messages."""
    session = run.resolver.session(session_id)
    messages = list(run.service.host.messages(session.id, newest=options.fetch(limit)))
    cut = limit and len(messages) > limit
    messages = messages[-limit:] if limit else messages
    accounts = run.service.scopes.labels([*session.agents, *session.users])
    readings = run.service.cold.readings(session)

    def count(of: Callable[[Reading], int]) -> list[str]:
        """Count messages for each agent: read by neither edenmem nor the platform, or by both."""
        return [
            f"{many(of(each), 'message')} for {accounts[each.agent_id]}"
            for each in readings
            if of(each)
        ]

    run.out.record(
        session,
        [
            ("id", session.id),
            ("name", session.name),
            ("title", session.title),
            ("agents", [accounts[id] for id in session.agents]),
            ("users", [accounts[id] for id in session.users]),
            ("group", session.group_id),
            ("status", session.status),
            ("origin", origin(session) if session.imported else None),
            ("incognito", session.incognito or None),
            ("last activity", session.last_activity),
            ("skipped", count(lambda each: each.unread)),
            ("read twice", count(lambda each: each.twice)),
        ],
        data=lambda one: (
            to_data(one)
            | {
                "messages": [to_data(message) for message in messages],
                "readings": [to_data(reading) for reading in readings],
            }
        ),
    )
    if not run.out.is_data:
        for message in messages:
            title = f"{message.name or message.role} ({message.role}, {iso(message.created_at)})"
            run.out.line()
            run.out.passage(title, message.content)
    if cut:
        run.out.note(f"showing the newest {many(limit, 'message')}; --limit 0 shows all")


# -- full screen ---------------------------------------------------------------------------------


def browse(run: Invocation) -> None:
    """Browse and edit scopes, facts, reflections, texts and the log in a full-screen view.

    The bottom line lists the keys; ? explains them. --read-only disables edits.

    \b
    edenmem browse
    edenmem browse --read-only
    """
    if find_spec("textual") is None:
        raise ConfigError("the browser is not installed", hint=install_hint("ui"))
    run.refuse_output_file("the browser is a full-screen view")
    if not (person_is_there() and sys.stdout.isatty()):
        raise UsageError(
            "'edenmem browse' needs a terminal", hint="without one, try 'edenmem scope list'"
        )
    next(iter(run.service.scopes.statuses()), None)  # fail here if the store cannot be read
    from edenmem.browse.app import Browser

    if run.out.is_colored(sys.stdout):
        os.environ.pop("NO_COLOR", None)
    else:
        os.environ["NO_COLOR"] = "1"  # textual reads the environment

    async def work(service: MemoryService) -> None:
        await Browser(service, run.settings).run_async()

    run.serve(work)


# -- the log -------------------------------------------------------------------------------------

#: Minimum width for the columns of commands and runs.
_WIDE = 130


log_app = group("List changes of memory (log alone), seal the log, and verify its seals.")


@log_app.command("list", cls=Command)
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
    find_id = run.resolver.logged_id
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


@log_app.command("seal", cls=Command)
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


@log_app.command("verify", cls=Command)
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
