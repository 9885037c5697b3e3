"""``edenmem search --why-not``: where a fact is lost on its way through a search."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypedDict

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.commands.search.explaining import tell_stages
from edenmem.cli.terminal.data import to_data
from edenmem.cli.terminal.tables import Column
from edenmem.cli.terminal.views import labelled
from edenmem.models.host import Agent
from edenmem.models.scope import ScopeKind

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.engine.search.why_not import ListPlace, WhyNot
    from edenmem.llm.protocol import LLM
    from edenmem.rerank.protocol import Reranker


class Reader(TypedDict):
    """Whose facts are searched, beside the agent."""

    user_id: str | None
    account_id: str | None
    group_id: str | None
    shards: Sequence[str] | None
    kinds: Sequence[ScopeKind] | None


class Wanted(TypedDict):
    """How they are searched."""

    recipe: str | None
    top_k: int | None
    since: datetime | None
    until: datetime | None
    session_id: str | None
    rerank: bool | None
    recency: bool | None
    mmr: bool | None
    exact: bool


def look(
    run: Invocation, fact_id: str, query: str, agent: Agent, reader: Reader, wanted: Wanted
) -> WhyNot:
    """Ask why the search does not bring the fact."""
    from edenmem.engine.scopes.visibility import reader_scopes
    from edenmem.engine.search.why_not import Detective

    scopes = reader_scopes(run.store, agent, **reader)

    async def main(_: LLM | None, embedder: Embedder | None, reranker: Reranker | None) -> WhyNot:
        detective = Detective(run.store, run.settings, embedder=embedder, reranker=reranker)
        return await detective.why_not(fact_id, query, scopes, **wanted)

    return run.with_providers(main)


#: What the table of lists says already.
_LISTS = frozenset({"semantic", "text"})
_COLUMNS: list[Column[ListPlace]] = [
    Column("list", lambda place: place.name),
    Column("rank", lambda place: place.rank, "number"),
    Column("looked at", lambda place: place.depth, "number"),
    Column("score", lambda place: place.score, "number"),
    Column("floor", lambda place: place.floor, "number"),
]


def tell_why_not(run: Invocation, answer: WhyNot) -> None:
    """Print the answer."""
    for notice in answer.notices:
        run.out.note(notice)
    if run.out.is_data:
        run.out.objects([to_data(answer)])
        return
    label = labelled(run, [answer.fact.home])
    run.out.fields(
        [
            ("fact", answer.fact.id),
            ("content", answer.fact.content),
            ("scope", label(answer.fact.home)),
            ("searched", "yes" if answer.in_scope else "no"),
            ("vector", answer.vector),
            ("recipe", answer.recipe),
        ]
    )
    if answer.lists:
        run.out.line()
        run.out.listing(answer.lists, _COLUMNS)
    stages = {name: said for name, said in answer.explain.items() if name not in _LISTS}
    if stages:
        run.out.line()
        tell_stages(run, stages)
    run.out.line()
    title = "found" if answer.stage == "found" else f"lost at {answer.stage}"
    run.out.fields([(title, answer.why), ("to change it", answer.advice)])
