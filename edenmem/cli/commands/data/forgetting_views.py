"""Views of an erasure: plan, decisions about mentions, report and receipt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.editing import EditorFile, find_editor, show_diff
from edenmem.cli.terminal.prompts import ask_choice, confirm
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
from edenmem.errors import ProviderError, UsageError
from edenmem.models.forgetting import Subject
from edenmem.text import many

Row = tuple[str, int]

_COUNTS: Sequence[Column[Row]] = (
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
        ]
    )
    rows = [*plan.counts.items(), *(plan.conversations.items() if messages else ())]
    empty = "no memory found"
    if plan.mentions and subject.kind == "user":
        count = many(len(plan.mentions), "entry mentions", "entries mention")
        empty = f"no memory of their own; {count} them"
    run.out.listing(rows, _COUNTS, empty=empty)
    if plan.mentions:
        run.out.line()
        run.out.listing(plan.mentions, lambda shown: _mention_columns(run, shown, modes))
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


def _mention_columns(
    run: Invocation, shown: Sequence[Mention], modes: Modes
) -> Sequence[Column[Mention]]:
    known = run.service.scopes.labels(
        [mention.scope for mention in shown if mention.scope is not None]
    )

    def place(mention: Mention) -> str:
        return known.full(mention.scope) if mention.scope is not None else ""

    return (
        Column("type", lambda m: m.target_type),
        Column("why", _why),
        Column("action", lambda m: m.treatment(m.mode(*modes))),
        Column("owner", place),
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
        "unreadable": list(plan.unreadable),
        "stays": list(_staying(plan, messages=messages)),
    }


def show_report(run: Invocation, report: ForgetReport) -> None:
    """Print the report of an erasure, with its verification."""
    run.out.report([report], lambda: _show_report(run, report), data=receipt_of)


def _show_report(run: Invocation, report: ForgetReport) -> None:
    run.out.heading(f"Erased: {subject_line(run, report.subject)}")
    run.out.listing(list(report.removed.items()), _COUNTS, empty="nothing to remove")
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
