"""``edenmem forget``: erase a user, session, group, agent or single facts completely."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edenmem.cli.app import options
from edenmem.cli.app.failures import print_error
from edenmem.cli.app.invocation import Invocation, invocation
from edenmem.cli.app.told import describe_told
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import EditorFile, find_editor, show_diff
from edenmem.cli.terminal.files import open_report
from edenmem.cli.terminal.prompts import Missing, ask_choice, ask_text, confirm, person_is_there
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
from edenmem.engine.factory import has_llm
from edenmem.errors import ExitCode, ProviderError, UsageError
from edenmem.models.forgetting import Subject
from edenmem.text import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edenmem.engine.erasure.reports import ForgetPlan, ForgetReport, MentionDecision


_FOR_EVER = "This cannot be undone, not even with 'undo' or history. No memory will be formed from"


Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="NAME",
        help="Another name, or with --fact other words, in texts (repeatable).",
    ),
]
Mentions = Annotated[
    MentionMode | None,
    typer.Option(
        "--mentions",
        metavar="HOW",
        help="Entries of others that mention the name: ask, rewrite (with the model), remove or"
        " keep.  [default: ask on a terminal, else keep]",
    ),
]
Learned = Annotated[
    MentionMode | None,
    typer.Option(
        "--learned",
        metavar="HOW",
        help="Entries learned from the user's messages: same values and default. 'remove' keeps"
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
    ctx: typer.Context,
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
    mentions: Mentions = None,
    learned: Learned = None,
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
    vectors, and memory derived from them in wider scopes. On request, also removes entries learned
    from the user's messages and mentions in memory of others. Shows the plan, asks, removes, and
    verifies that nothing is left (else exit 1). If interrupted, run the same command again.

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
    from edenmem.engine.exchange.files import check_target

    run = invocation(ctx)
    if check is not None:
        _check(run, check)
        return
    if not (user or session or group or agent or fact):
        raise Missing("--user, --session, --group, --agent or --fact")
    for option, mode in (("--mentions", mentions), ("--learned", learned)):
        if mode is MentionMode.ASK and not person_is_there():
            raise UsageError(
                f"{option} ask needs a terminal",
                hint=f"use {option} keep, {option} remove or {option} rewrite",
            )
    asking = MentionMode.ASK if person_is_there() and not yes else MentionMode.KEEP
    modes = (mentions or asking, learned or asking)
    if receipt is not None:
        check_target(receipt, force=run.overwrite, in_use=run.files_in_use)
    subject = run.service.erasure.find_subject(
        user=user,
        session=session,
        group=group,
        agent=agent,
        facts=fact or (),
        names=name or (),
    )
    if messages:
        run.service.erasure.check_conversations(subject)
    if not (yes or dry_run or person_is_there()):
        confirm("", yes=False)  # names the missing option, before the plan is made
    plan = run.serve(lambda service: service.erasure.plan(subject))
    show_plan(run, plan, modes, messages=messages, to_data_too=dry_run)
    if plan.begun_at is not None:
        run.out.note("resuming an interrupted run")
    if dry_run:
        return
    deciding = MentionReview(run, plan)
    decisions = deciding.decide(*modes)
    if not _confirm(run, plan, yes=yes):
        run.out.note("nothing was changed")
        return
    with open_report(receipt, force=run.overwrite, in_use=run.files_in_use) as write:
        report = _carry_out(run, plan, decisions, messages=messages, failed=deciding.failed)
        write(format_receipt(report))
    show_report(run, report)
    if report.mentions["kept"]:
        run.out.note(_describe_kept(report))
    for left in report.unfinished:
        print_error(left, "run the same command again")
    if not report.complete:
        raise typer.Exit(ExitCode.SOME_FAILED)


def _check(run: Invocation, receipt: str) -> None:
    """Print what came back since a receipt."""
    from edenmem.engine.seals.receipts import read_receipt

    told = read_receipt(receipt)
    back = run.serve(lambda service: service.erasure.check(told))
    run.out.listing(list(back.items()), COUNTS, empty="nothing came back")
    if back:
        print_error("forgotten memory came back", "erase it again, or run 'edenmem doctor --fix'")
        raise typer.Exit(ExitCode.SOME_FAILED)


def _describe_kept(report: ForgetReport) -> str:
    number = report.mentions["kept"]
    if report.subject.kind == "fact":
        kept = many(number, "entry that repeats a text", "entries that repeat a text")
        return f"kept {kept} or mentions a name; see --mentions"
    kept = many(
        number,
        "entry that mentions the user or was learned",
        "entries that mention the user or were learned",
    )
    return f"kept {kept} from their messages; see --mentions and --learned"


def _confirm(run: Invocation, plan: ForgetPlan, *, yes: bool) -> bool:
    of_fact = plan.subject.kind == "fact"
    run.out.note(f"{_FOR_EVER} {'the source messages' if of_fact else 'existing messages'}.")
    if plan.subject.kind != "agent" or yes:
        return confirm("Erase all this?", yes=yes)
    agent = run.service.host.agent(plan.subject.agent_id or "")
    wanted = agent.username if agent is not None else plan.subject.agent_id
    return ask_text(f"to erase the agent, type its name ({wanted})", "--yes") == wanted


def _carry_out(
    run: Invocation,
    plan: ForgetPlan,
    decisions: Sequence[MentionDecision],
    *,
    messages: bool,
    failed: Sequence[str],
) -> ForgetReport:
    run.out.progress("erasing; if interrupted, run the same command again")
    return run.serve(
        lambda service: service.erasure.forget(plan, decisions, messages=messages, failed=failed)
    )


Row = tuple[str, int]

#: The columns of counts by kind.
COUNTS: Sequence[Column[Row]] = (
    Column("item", lambda row: row[0]),
    Column("count", lambda row: row[1], "number"),
)


def subject_line(run: Invocation, subject: Subject) -> str:
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
    owner = known[subject.owner]
    if subject.kind == "session":
        owner = subject.names[0]
    return f"{subject.kind} {owner}" + (f", agent {agent}" if subject.agent_id else "")


Modes = tuple[MentionMode, MentionMode]


def show_plan(
    run: Invocation, plan: ForgetPlan, modes: Modes, *, messages: bool, to_data_too: bool
) -> None:
    """Print what would be removed, mentions elsewhere with their treatment, and what stays."""
    if to_data_too or not run.out.is_data:
        run.out.report(
            [plan],
            lambda: _show_plan(run, plan, modes, messages=messages),
            data=lambda one: plan_data(one, modes, messages=messages),
        )


def _show_plan(run: Invocation, plan: ForgetPlan, modes: Modes, *, messages: bool) -> None:
    subject = plan.subject
    run.out.heading(f"To erase: {subject_line(run, subject)}")
    run.out.fields(
        [
            ("texts" if subject.kind == "fact" else "names", list(subject.names)),
            ("started", plan.begun_at),
            ("told", describe_told(run, plan.told) if plan.told else None),
        ]
    )
    rows = [*plan.counts.items(), *(plan.conversations.items() if messages else ())]
    empty = "no memory found"
    if plan.mentions and subject.kind == "user":
        count = many(len(plan.mentions), "entry mentions", "entries mention")
        empty = f"no memory of their own; {count} them"
    run.out.listing(rows, COUNTS, empty=empty)
    if plan.mentions:
        run.out.line()
        run.out.listing(plan.mentions, mention_columns(modes))
        run.out.note("--json shows all entries in full")
    run.out.line()
    for document in plan.unreadable:
        run.out.paragraph("unreadable: ", f"{document}; see 'edenmem doctor --check readable'")
    for what in _staying(plan, messages=messages):
        run.out.paragraph("kept: ", what)


_KEPT_SOURCES = (
    "no memory will be formed from them again. Agents still read them in the conversation: remove"
    " them with --messages, or in MongoDB on the platform"
)


def _staying(plan: ForgetPlan, *, messages: bool) -> list[str]:
    counts = {} if messages else dict(plan.conversations)
    if counts and plan.subject.kind == "fact":
        said = many(counts.get("messages", 0), "source message")
        return [f"{said}; {_KEPT_SOURCES}", *plan.stays]
    accounts = counts.pop("accounts", 0)
    kept = [many(accounts, "account")] if accounts else []
    if counts:
        said = ", ".join(f"{kind}: {number:,}" for kind, number in counts.items())
        sessions = len(plan.traces.own) + len(plan.traces.shared)
        kept.append(
            f"conversations ({said}); no memory will be formed from them again"
            f" ({many(sessions, 'session')} affected)"
        )
    return [*kept, *plan.stays]


def mention_columns(modes: Modes) -> Sequence[Column[Mention]]:
    """Return the columns of a list of mentions."""
    return (
        Column("type", lambda m: m.target_type),
        Column("why", _why),
        Column("action", lambda m: m.treatment(m.mode(*modes))),
        Column("owner", lambda m: m.scope, names="place"),
        Column("id", lambda m: m.target_id, "id"),
        Column("copies", lambda m: m.copies if m.copies > 1 else None, "number"),
        Column("text", _describe, "text"),
    )


def _why(mention: Mention) -> str:
    learned = {"": (), "alone": ("learned",), "unclear": ("learned?",)}
    return ", ".join((*(("mention",) if mention.mentioned else ()), *learned[mention.learned]))


def _describe(mention: Mention) -> str:
    if mention.contexts:
        return " | ".join(mention.contexts)
    if mention.removed:
        number = len(mention.removed)
        return f"absorbed {number:,} of the reflections"
    return mention.text or ""


def plan_data(plan: ForgetPlan, modes: Modes, *, messages: bool) -> dict[str, Any]:
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
        "stays": list(_staying(plan, messages=messages)),
    }


def show_report(run: Invocation, report: ForgetReport) -> None:
    """Print the report of an erasure, with its verification."""
    run.out.report([report], lambda: _show_report(run, report), data=receipt_of)


def _show_report(run: Invocation, report: ForgetReport) -> None:
    run.out.heading(f"Erased: {subject_line(run, report.subject)}")
    run.out.listing(list(report.removed.items()), COUNTS, empty="nothing to remove")
    probe = report.probe
    run.out.fields(
        [
            ("mentions", _tally(report.mentions)),
            (
                "verified",
                f"{many(probe.texts, 'text')}, {many(probe.searches, 'search', 'searches')},"
                f" {many(probe.contexts, 'context')}",
            ),
            ("left", _describe_left(report.left) or "nothing"),
            ("still found", list(probe.found)),
            ("words only", probe.by_words and f"some searches: {probe.by_words}"),
        ]
    )
    for what in report.compaction.beyond:
        run.out.paragraph("not erased: ", what)


#: Words of `ForgetReport.left` whose singular has no "s" less.
_SINGULARS = {"policies": "policy", "copies": "copy"}


def _describe_left(left: Mapping[str, int]) -> str:
    return ", ".join(many(number, _singular(kind), kind) for kind, number in left.items())


def _singular(kind: str) -> str:
    words = kind.split(" ")
    noun = 1 if words[0] == "older" else 0
    words[noun] = _SINGULARS.get(words[noun]) or words[noun].removesuffix("s")
    return " ".join(words)


def _tally(mentions: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in mentions.items() if number)


def format_receipt(report: ForgetReport) -> str:
    """Format the receipt of an erasure as JSON."""
    return json.dumps(receipt_of(report), indent=2, ensure_ascii=False)


class MentionReview:
    """Decisions about mentions; ``failed`` describes the ones that could not be carried out."""

    def __init__(self, run: Invocation, plan: ForgetPlan) -> None:
        self._run = run
        self._plan = plan
        self.failed: list[str] = []
        self._can_draft = has_llm(run.settings)
        self._drafts: dict[tuple[str, str], str] = {}  # edited text, for the next attempt

    def decide(self, mentions: MentionMode, learned: MentionMode) -> list[MentionDecision]:
        """Decide on each mention; mentions without a decision are kept.

        Raises:
            UsageError: A rewrite needs a model, and none is configured.
        """
        found = (self._decide(one, one.mode(mentions, learned)) for one in self._plan.mentions)
        return [decision for decision in found if decision is not None]

    def _decide(self, mention: Mention, mode: MentionMode) -> MentionDecision | None:
        match mention.treatment(mode):
            case "ask":
                return self._ask(mention)
            case "rewrite":
                decision = self._draft(mention)
                if decision is not None:
                    self._show(decision)
                return decision
            case "keep":
                if mode is not MentionMode.KEEP:
                    option = "--learned" if mention.learned else "--mentions"
                    why = f"only a rewrite removes the mention ({option} rewrite)"
                    if mention.target_type == "policy":
                        why = "edit it with 'edenmem scope policy', then run this command again"
                    self._fail(mention, why)
                return None
            case treatment:
                return MentionDecision(mention=mention, treatment=treatment)

    # -- by the model --------------------------------------------------------------------------

    def _draft(self, mention: Mention) -> MentionDecision | None:
        self._run.out.progress(f"calling the model for {mention.target_type} {mention.target_id}")
        try:
            return self._run.serve(
                lambda service: service.erasure.draft(self._plan, mention), llm=True
            )
        except (RewritingRefused, ProviderError) as error:
            self._fail(mention, error.message)
            return None

    def _fail(self, mention: Mention, why: str) -> None:
        self.failed.append(f"kept {mention.target_type} {mention.target_id}: {why}")

    # -- by a person ---------------------------------------------------------------------------

    def _ask(self, mention: Mention) -> MentionDecision | None:
        out = self._run.out
        out.note("")
        why = _WHY[mention.learned]
        if self._plan.subject.kind == "fact":
            why = "repeats a text, or mentions a name"
        out.note(f"{mention.target_type} {mention.target_id} {why}:")
        # A fact is shown in full, a long text only around its mentions.
        whole = mention.text if mention.target_type in ("fact", "reflection") else None
        for line in (
            [whole]
            if whole
            else mention.contexts or ["(absorbed reflections that will be removed)"]
        ):
            out.note(f"  {line}")
        while True:
            decision, again = self._choose(mention)
            if not again:
                return decision

    def _choose(self, mention: Mention) -> tuple[MentionDecision | None, bool]:
        """Return the decision, and whether to ask again."""
        option = "--learned" if mention.learned else "--mentions"
        match ask_choice("what to do", option, self._choices(mention)):
            case "keep":
                return None, False
            case "redact":
                return MentionDecision(mention=mention, treatment="redact"), False
            case "remove":
                return MentionDecision(mention=mention, treatment="remove"), False
            case "rewrite":
                decision = self._draft(mention)
                if decision is None:
                    self._run.out.note(self.failed.pop())
                    return None, True
            case _:
                decision = self._edit(mention)
                if decision is None:
                    return None, True
        self._show(decision)
        return (decision, False) if confirm("Use this text?", yes=False) else (None, True)

    def _choices(self, mention: Mention) -> list[tuple[str, str]]:
        """Return the possible treatments of a mention, as values and labels."""
        keep = ("keep", "keep unchanged")
        if mention.text is None:
            return [("redact", f"clear older copies ({mention.copies:,})"), keep]
        choices = []
        if not mention.fixed:
            if self._can_draft:
                choices.append(("rewrite", "rewrite with the model"))
            if find_editor():
                choices.append(("edit", "edit in $EDITOR"))
        if mention.removable:
            choices.append(("remove", "remove"))
        return [*choices, keep]

    def _edit(self, mention: Mention) -> MentionDecision | None:
        from edenmem.engine.erasure.forgetting import validate_rewrite

        drafts, key = self._drafts, (mention.target_type, mention.target_id)
        file = EditorFile(drafts.get(key, mention.text or ""), mention.target_type)
        try:
            drafts[key] = file.edit()
        except UsageError as error:
            self._run.out.note(error.message)
            return None
        finally:
            file.remove()  # erased text must not stay in a file
        try:
            return validate_rewrite(self._plan.subject, mention, drafts[key])
        except RewritingRefused as error:
            self._run.out.note(error.message)
            return None

    def _show(self, decision: MentionDecision) -> None:
        if self._run.out.is_data:
            return
        mention = decision.mention
        what = f"{mention.target_type} {mention.target_id}"
        after = decision.text if decision.treatment == "rewrite" else ""
        show_diff(self._run.out, mention.text or "", after, old=what, new=f"{what} (new)")


_WHY = {
    "": "mentions the name",
    "alone": "was learned from the messages",
    "unclear": "was learned from the messages, and perhaps from others",
}
