"""``edenmem show|why|history|browse``: anything that a reference names, its origin and its past."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.views import (
    HISTORY,
    origin,
    scope_fields,
    scope_name,
    told_sections,
    usage_line,
)
from edenmem.cli.commands.log import log_columns, show_entry
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.prompts import person_is_there
from edenmem.engine.history.descriptions import (
    Section,
    fact_fields,
    fact_sections,
    memory_fields,
    senders_of,
    text_sections,
)
from edenmem.errors import ConfigError, NotFoundError, UsageError
from edenmem.models.changes import AuditEntry
from edenmem.models.formation import Reading
from edenmem.models.scope import Scope
from edenmem.models.told import text_key
from edenmem.settings.installation import install_hint
from edenmem.text import iso, many, word_count

if TYPE_CHECKING:
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
        _show_fact(run, target.id, vectors)
    elif target.kind == "session":
        _show_session(run, target.id, limit)
    else:
        _SHOWN[target.kind](run, target.id)


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


def _show_fact(run: Invocation, fact_id: str, vectors: bool) -> None:
    fact = run.service.memory.find_fact(fact_id)
    if vectors:
        fact = run.service.memory.fact(fact.id, with_vector=True) or fact
    run.out.record(
        fact,
        [("id", fact.id), *scope_fields(run, fact.home), *memory_fields(fact)],
        text=fact.content,
        data=lambda one: to_data(one, vectors=vectors),
    )


def _show_reflection(run: Invocation, reflection_id: str) -> None:
    reflection = run.resolver.reflection(reflection_id)
    run.out.record(
        reflection,
        [("id", reflection.id), *scope_fields(run, reflection.home), *memory_fields(reflection)],
        text=reflection.content,
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


#: Kind → how it is shown.
_SHOWN = {"reflection": _show_reflection, "agent": _show_agent, "user": _show_user}


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
