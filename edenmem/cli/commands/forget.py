"""``edenmem forget|person``: erase completely, and what is stored about a person."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.framework import Command, group
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.views import counts, describe_told
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import show_diff
from edenmem.cli.terminal.prompts import Missing, ask_text, confirm, person_is_there
from edenmem.cli.terminal.tables import Column
from edenmem.engine.erasure.reports import (
    ForgetPlan,
    ForgetReport,
    Mention,
    MentionDecision,
    MentionMode,
    RewritingRefused,
    receipt_of,
)
from edenmem.errors import ProviderError
from edenmem.models.forgetting import Subject
from edenmem.text import many

if TYPE_CHECKING:
    from edenmem.engine.erasure.person import PersonData


Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Another name, or with --fact other words, in texts (repeatable).",
    ),
]
Mentions = Annotated[
    MentionMode,
    typer.Option(
        "--mentions",
        metavar="HOW",
        help="Entries of others that mention the name: rewrite (with the model), remove or keep.",
    ),
]
Learned = Annotated[
    MentionMode,
    typer.Option(
        "--learned",
        metavar="HOW",
        help="Entries learned from the user's messages: same values. 'remove' keeps"
        " entries that others may have said too.",
    ),
]
Messages = Annotated[
    bool,
    typer.Option(
        "--messages",
        help="Also remove messages and accounts, or with --fact its source messages (SQLite only).",
    ),
]
ReceiptFile = Annotated[
    str | None,
    typer.Option(
        "--receipt",
        metavar="FILE",
        help="Write a JSON receipt without names or contents; --force overwrites the file.",
    ),
]


def forget(
    run: Invocation,
    user: options.User = None,
    session: options.Session = None,
    group: options.Group = None,
    agent: options.Agent = None,
    fact: Annotated[
        list[str] | None,
        typer.Option(
            "--fact",
            metavar="FACT",
            help="Fact: ID or ID prefix (repeatable). A deleted fact needs its full ID.",
        ),
    ] = None,
    name: Names = None,
    mentions: Mentions = MentionMode.KEEP,
    learned: Learned = MentionMode.KEEP,
    messages: Messages = False,
    receipt: ReceiptFile = None,
    check: Annotated[
        str | None,
        typer.Option(
            "--check",
            metavar="RECEIPT",
            help="Only look for what came back since this receipt; exit with 1 if there is any.",
        ),
    ] = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Erase single facts, or all memory of a user (for one agent or all), session, group or agent.

    Removes facts, reflections, texts, versions, audit contents, formation records, cached contexts,
    vectors, and what wider scopes repeat of them. On request, also removes entries learned from the
    user's messages (--learned) and mentions in memory of others (--mentions). Shows the plan, asks,
    removes, and verifies that nothing is left (else exit 1). If interrupted, run the same command
    again.

    --fact removes facts with all copies of their texts, such as versions and log contents, and
    forms no memory from their source messages again. Other memory that contains a whole text, or a
    --name, is listed and follows --mentions.

    \b
    edenmem forget --user lena --dry-run
    edenmem forget --user lena --receipt lena.json
    edenmem forget --user lena --yes --mentions rewrite --learned remove
    edenmem forget --session first-visit --yes
    edenmem forget --agent mira
    edenmem forget --fact 65a1f0 --dry-run
    edenmem forget --fact 65a1f0 --name sk-live-42 --mentions remove --messages
    edenmem forget --check lena.json
    """
    from edenmem.engine.exchange.files import check_target, open_for_writing

    if check is not None:
        _check(run, check)
        return
    if not (user or session or group or agent or fact):
        raise Missing("--user, --session, --group, --agent or --fact")
    modes = (mentions, learned)
    if receipt is not None:
        check_target(receipt, force=run.overwrite, in_use=run.files_in_use)
    erasure = run.service.erasure
    subject = erasure.find_subject(
        user=user, session=session, group=group, agent=agent, facts=fact or (), names=name or ()
    )
    if messages:
        erasure.check_conversations(subject)
    if not (yes or dry_run or person_is_there()):
        confirm("", yes=False)  # names the missing option, before the plan is made
    plan = run.serve(lambda service: service.erasure.plan(subject))
    _show_plan(run, plan, modes, messages=messages, dry_run=dry_run)
    if plan.begun_at is not None:
        run.out.note("resuming an interrupted run")
    if dry_run:
        return
    failed: list[str] = []
    decisions = [
        decision
        for mention in plan.mentions
        if (decision := _decide(run, plan, mention, mention.mode(*modes), failed))
    ]
    _confirm(run, plan, yes=yes)
    with (
        nullcontext()
        if receipt is None
        else open_for_writing(
            receipt, compress=False, force=run.overwrite, in_use=run.files_in_use
        ) as file
    ):
        run.out.progress("erasing; if interrupted, run the same command again")
        report = run.serve(
            lambda service: service.erasure.forget(
                plan, decisions, messages=messages, failed=failed
            )
        )
        if file is not None:
            file.write(
                json.dumps(receipt_of(report), indent=2, ensure_ascii=False).encode() + b"\n"
            )
    _show_report(run, report)
    for left in report.unfinished:
        print_error(left, "run the same command again")
    end_if(not report.complete)


def _check(run: Invocation, receipt: str) -> None:
    """Print what came back since a receipt."""
    from edenmem.engine.seals.hashes import read_receipt

    told = read_receipt(receipt)
    back = run.serve(lambda service: service.erasure.check(told))
    run.out.listing(list(back.items()), _COUNTS, empty="nothing came back")
    if back:
        print_error("forgotten memory came back", "erase it again, or run 'edenmem doctor --fix'")
    end_if(back)


def _confirm(run: Invocation, plan: ForgetPlan, *, yes: bool) -> None:
    """Ask for confirmation; to erase an agent, its name is typed."""
    sources = "the source messages" if plan.subject.kind == "fact" else "existing messages"
    run.out.note(
        "This cannot be undone, not even with 'undo' or history. No memory will be formed from"
        f" {sources}."
    )
    if plan.subject.kind != "agent" or yes:
        run.confirm("Erase all this?", yes=yes)
        return
    agent = run.service.host.agent(plan.subject.agent_id or "")
    wanted = agent.username if agent is not None else plan.subject.agent_id
    if ask_text(f"to erase the agent, type its name ({wanted})", "--yes") != wanted:
        run.out.note("nothing was changed")
        raise typer.Exit


#: The columns of counts by kind.
_COUNTS: Sequence[Column[tuple[str, int]]] = (
    Column("item", lambda row: row[0]),
    Column("count", lambda row: row[1], "number"),
)


def _describe_subject(run: Invocation, subject: Subject) -> str:
    """Describe the subject of an erasure."""
    if subject.kind == "fact":
        ids = subject.facts or subject.references
        return f"{'fact' if len(ids) == 1 else 'facts'} {', '.join(ids)}"
    if subject.known_id:
        return f"{subject.kind} {subject.names[0]}"
    known = run.service.scopes.labels([id for id in (subject.agent_id, subject.owner) if id])
    agent = known.get(subject.agent_id or "", subject.agent_id or "")
    if subject.kind == "agent":
        return f"all memory of agent {agent}"
    owner = subject.names[0] if subject.kind == "session" else known[subject.owner]
    return f"{subject.kind} {owner}" + (f", agent {agent}" if subject.agent_id else "")


Modes = tuple[MentionMode, MentionMode]


def _show_plan(
    run: Invocation, plan: ForgetPlan, modes: Modes, *, messages: bool, dry_run: bool
) -> None:
    """Print what would be removed, mentions elsewhere with their treatment, and what stays."""
    out, subject = run.out, plan.subject
    staying = _staying(plan, messages=messages)
    if out.is_data:
        if dry_run:
            out.data([plan], lambda one: _plan_data(one, modes, staying, messages=messages))
        return
    out.heading(f"To erase: {_describe_subject(run, subject)}")
    out.fields(
        [
            ("texts" if subject.kind == "fact" else "names", subject.names),
            ("started", plan.begun_at),
            ("told", describe_told(run, plan.told) if plan.told else None),
        ]
    )
    rows = [*plan.counts.items(), *(plan.conversations.items() if messages else ())]
    empty = "no memory found"
    if plan.mentions and subject.kind == "user":
        count = many(len(plan.mentions), "entry mentions", "entries mention")
        empty = f"no memory of their own; {count} them"
    out.listing(rows, _COUNTS, empty=empty)
    if plan.mentions:
        out.line()
        out.listing(plan.mentions, _mention_columns(modes))
        out.note("--json shows all entries in full")
    out.line()
    for document in plan.unreadable:
        out.paragraph("unreadable: ", f"{document}; see 'edenmem doctor --check readable'")
    for what in staying:
        out.paragraph("kept: ", what)


def _staying(plan: ForgetPlan, *, messages: bool) -> list[str]:
    """Describe what stays: accounts and conversations, and the rest of the plan."""
    found = {} if messages else dict(plan.conversations)
    if found and plan.subject.kind == "fact":
        said = many(found.get("messages", 0), "source message")
        return [
            f"{said}; no memory will be formed from them again. Agents still read them in the"
            " conversation: remove them with --messages, or in MongoDB on the platform",
            *plan.stays,
        ]
    accounts = found.pop("accounts", 0)
    kept = [many(accounts, "account")] if accounts else []
    if found:
        said = ", ".join(f"{kind}: {number:,}" for kind, number in found.items())
        sessions = len(plan.traces.own) + len(plan.traces.shared)
        kept.append(
            f"conversations ({said}); no memory will be formed from them again"
            f" ({many(sessions, 'session')} affected)"
        )
    return [*kept, *plan.stays]


def _mention_columns(modes: Modes | None) -> list[Column[Mention]]:
    """Return the columns of a list of mentions, with their treatment if modes are given."""
    columns: list[Column[Mention]] = [
        Column("type", lambda m: m.target_type),
        Column("why", _why),
        Column("owner", lambda m: m.scope, names="full"),
        Column("id", lambda m: m.target_id, "id"),
        Column("copies", lambda m: m.copies if m.copies > 1 else None, "number"),
        Column("text", _excerpt, "text"),
    ]
    if modes is not None:
        columns.insert(2, Column("action", lambda m: m.treatment(m.mode(*modes))))
    return columns


def _why(mention: Mention) -> str:
    learned = {"": (), "alone": ("learned",), "unclear": ("learned?",)}
    return ", ".join((*(("mention",) if mention.mentioned else ()), *learned[mention.learned]))


def _excerpt(mention: Mention) -> str:
    if mention.removed and not mention.contexts:
        return f"absorbed {len(mention.removed):,} of the reflections"
    return " | ".join(mention.contexts) or mention.text or ""


def _plan_data(
    plan: ForgetPlan, modes: Modes, staying: Sequence[str], *, messages: bool
) -> dict[str, Any]:
    """Return a plan as data."""
    subject = plan.subject
    return {
        "dry_run": True,
        "id": subject.id,
        "kind": subject.kind,
        "owner": subject.owner or None,
        "agent_id": subject.agent_id,
        "accounts": list(subject.accounts),
        "facts": list(subject.facts),
        "names": list(subject.names),
        "begun_at": to_data(plan)["begun_at"],
        "remove": plan.counts | (plan.conversations if messages else {}),
        "mentions": [
            to_data(mention) | {"treatment": mention.treatment(mention.mode(*modes))}
            for mention in plan.mentions
        ],
        "told": [to_data(one) for one in plan.told],
        "unreadable": list(plan.unreadable),
        "stays": list(staying),
    }


def _show_report(run: Invocation, report: ForgetReport) -> None:
    """Print the report of an erasure with its verification, and the entries that were kept."""
    out, remains = run.out, report.remains
    if not out.data([report], receipt_of):
        out.heading(f"Erased: {_describe_subject(run, report.subject)}")
        out.listing(list(report.removed.items()), _COUNTS, empty="nothing to remove")
        out.fields(
            [
                ("mentions", counts(*((n, what) for what, n in report.mentions.items()))),
                ("verified", many(remains.texts, "text")),
                ("left", _describe_left(report.left) or "nothing"),
                ("still found", remains.found),
            ]
        )
        for what in report.compaction.beyond:
            out.paragraph("not erased: ", what)
    number = report.mentions["kept"]
    if number and report.subject.kind == "fact":
        kept = many(number, "entry that repeats a text", "entries that repeat a text")
        out.note(f"kept {kept} or mentions a name; see --mentions")
    elif number:
        kept = many(
            number,
            "entry that mentions the user or was learned",
            "entries that mention the user or were learned",
        )
        out.note(f"kept {kept} from their messages; see --mentions and --learned")


#: Words of `ForgetReport.left` whose singular has no "s" less.
_SINGULARS = {"policies": "policy", "copies": "copy"}


def _describe_left(left: Mapping[str, int]) -> str:
    parts = []
    for kind, number in left.items():
        words = kind.split(" ")
        noun = 1 if words[0] == "older" else 0
        words[noun] = _SINGULARS.get(words[noun]) or words[noun].removesuffix("s")
        parts.append(many(number, " ".join(words), kind))
    return ", ".join(parts)


def _decide(
    run: Invocation, plan: ForgetPlan, mention: Mention, mode: MentionMode, failed: list[str]
) -> MentionDecision | None:
    """Return the decision about a mention, or None to keep it; ``failed`` gets the reason."""
    treatment = mention.treatment(mode)
    what, why = f"{mention.target_type} {mention.target_id}", ""
    if treatment == "rewrite":
        run.out.progress(f"calling the model for {what}")
        try:
            decision = run.serve(lambda service: service.erasure.draft(plan, mention), llm=True)
        except (RewritingRefused, ProviderError) as error:
            why = error.message
        else:
            if not run.out.is_data:
                after = decision.text if decision.treatment == "rewrite" else ""
                show_diff(run.out, mention.text or "", after, old=what, new=f"{what} (new)")
            return decision
    elif treatment != "keep":
        return MentionDecision(mention=mention, treatment=treatment)
    elif mode is not MentionMode.KEEP:
        option = "--learned" if mention.learned else "--mentions"
        why = f"only a rewrite removes the mention ({option} rewrite)"
        if mention.target_type == "policy":
            why = "edit it with 'edenmem scope policy', then run this command again"
    if why:
        failed.append(f"kept {what}: {why}")
    return None


# -- person --------------------------------------------------------------------------------------

person_app = group("Show, export and erase what memory has about a person.")

_Name = Annotated[str, typer.Argument(metavar="PERSON", help="Username, ID or ID prefix.")]


def _gather(
    run: Invocation, user: str, agent: str | None, names: Sequence[str] | None
) -> PersonData:
    erasure = run.service.erasure
    subject = erasure.find_subject(user=user, agent=agent, names=names or ())
    return erasure.gather(run.serve(lambda service: service.erasure.plan(subject)))


@person_app.command("show", cls=Command)
def show(run: Invocation, user: _Name, agent: options.Agent = None, name: Names = None) -> None:
    """List what is stored about a person: own memory, memory elsewhere, messages, backups.

    \b
    edenmem person show lena
    """
    out, data = run.out, _gather(run, user, agent, name)
    if out.datum(data):
        return
    out.heading(f"Stored about {data.names[0] if data.names else 'the person'}")
    out.fields(
        [
            ("accounts", [f"{each.username} ({each.id})" for each in data.accounts]),
            ("names", data.names),
            ("sessions", [each.label for each in data.sessions]),
            ("told", describe_told(run, data.told) if data.told else None),
            ("replies", f"{data.replies:,} noted" if data.replies else None),
            ("backups", data.backups),
        ]
    )
    out.listing(list(data.counts.items()), _COUNTS, empty="no memory of their own")
    if data.mentions:
        out.section(f"{many(len(data.mentions), 'entry', 'entries')} elsewhere")
        out.listing(data.mentions, _mention_columns(None))
    out.line()
    for what in data.stays:
        out.paragraph("not listed: ", what)


@person_app.command("export", cls=Command)
def export(run: Invocation, user: _Name, agent: options.Agent = None, name: Names = None) -> None:
    """Write what is stored about a person: as a readable document, or completely with --json.

    \b
    edenmem person export lena -o lena.md
    edenmem person export lena --json -o lena.json
    """
    data = _gather(run, user, agent, name)
    if not run.out.datum(data):
        run.out.document(run.service.erasure.to_markdown(data))


@person_app.command("forget", cls=Command)
def forget_person(
    run: Invocation,
    user: _Name,
    agent: options.Agent = None,
    name: Names = None,
    mentions: Mentions = MentionMode.KEEP,
    learned: Learned = MentionMode.KEEP,
    messages: Messages = False,
    receipt: ReceiptFile = None,
    yes: options.Yes = False,
    dry_run: options.DryRun = False,
) -> None:
    """Erase a person, like 'edenmem forget --user'.

    \b
    edenmem person forget lena --receipt lena-receipt.json
    """
    forget(
        run,
        user=user,
        agent=agent,
        name=name,
        mentions=mentions,
        learned=learned,
        messages=messages,
        receipt=receipt,
        yes=yes,
        dry_run=dry_run,
    )
