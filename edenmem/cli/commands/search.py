"""``edenmem search|eval``: find facts, reflections and texts, and measure how well."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from edenmem.cli.app import options
from edenmem.cli.app.invocation import Invocation, end_if
from edenmem.cli.app.parameters import suggest
from edenmem.cli.terminal.data import keys_of, to_data
from edenmem.cli.terminal.files import file_name, lines_of
from edenmem.cli.terminal.prompts import ask_text
from edenmem.cli.terminal.tables import Column, unique_beginnings, wrap_text
from edenmem.engine.reports import (
    DroppedCandidate,
    MemoryHit,
    MemoryKind,
    SearchHit,
    SearchReport,
)
from edenmem.engine.search.highlight import match_spans
from edenmem.errors import UsageError, line_location
from edenmem.models.host import Agent
from edenmem.models.memory import Fact, describe_doubt
from edenmem.models.scope import Scope, ScopeKind
from edenmem.text import ago, figures, many, one_line

if TYPE_CHECKING:
    from edenmem.engine.evaluation import Evaluation, RecipeScore
    from edenmem.engine.search.why_not import ListPlace, WhyNot


def search(
    run: Invocation,
    queries: Annotated[
        list[str] | None,
        typer.Argument(metavar="[QUERY]…", help="One to three queries, searched together."),
    ] = None,
    agent: options.Agent = None,
    *,
    owners: options.Owners,
    kinds: options.Kinds = None,
    within: Annotated[
        list[str] | None,
        typer.Option(
            "--in",
            metavar="WHAT",
            help="Search facts, reflections or texts (comma-separated).  [default: facts]",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="convex, rrf, semantic or text, with optional stages: convex+rerank+mmr."
            "  [default: search.recipe, convex]",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            max=100,
            metavar="N",
            help="Maximum number of results.  [default: search.top_k, 10]",
        ),
    ] = None,
    since: options.Since = None,
    until: options.Until = None,
    session: options.Session = None,
    tags: options.WithTags = None,
    key: options.WithKey = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show ranks, scores, thresholds and dropped candidates."),
    ] = False,
    track: Annotated[
        bool, typer.Option("--track/--no-track", help="Count an access for each result.")
    ] = True,
    vectors: options.Vectors = False,
    why_not: Annotated[
        str | None,
        typer.Option("--why-not", metavar="FACT", help="Explain why this fact is not found."),
    ] = None,
    about: Annotated[
        str | None,
        typer.Option("--all-about", metavar="NAME", help="List all facts with this name, by time."),
    ] = None,
) -> None:
    """Find facts by meaning and by words.

    Searches the agent and its shards. Add --user or --group to include theirs.

    \b
    edenmem search "when does the walk start" --agent mira
    edenmem search "paste or glue" --agent mira --user lena --explain
    edenmem search "paste glue" --agent mira --why-not 6b02
    edenmem search lanterns --agent mira --in facts,reflections,texts
    edenmem search --all-about "Otto" --agent mira --user lena
    """
    places = _parse_within(within or ["facts"])
    if "facts" in places:
        options.check_hold_facts(kinds or ())
    alone = {  # options that cannot go with other kinds of memory
        "--explain": explain or None,
        "--vectors": vectors or None,
        "--why-not": why_not,
        "--all-about": about,
    }
    of_facts = {
        "--recipe": recipe,
        "--tag": tags,
        "--key": key,
        **alone,
    }
    for option, value in of_facts.items():
        if value is not None and ("facts" not in places or (option in alone and len(places) > 1)):
            raise UsageError(f"{option} applies only to facts", hint=f"remove --in or {option}")
    others = {"QUERY": queries, "--limit": top_k, **of_facts}
    begin, end = options.period(since, until)
    texts = list(queries or ())
    if about is not None:
        given = [name for name, value in others.items() if value]
        if wrong := [name for name in given if name not in ("--vectors", "--all-about")]:
            raise UsageError(f"--all-about lists every fact: remove {', '.join(wrong)}")
    elif not texts:
        texts = [ask_text("query", "QUERY")]
    if len(texts) > 3:
        raise UsageError(
            f"too many queries: {len(texts)} (at most 3)", hint="put each query in quotes"
        )
    if why_not is not None and len(texts) > 1:
        raise UsageError("--why-not takes one query", hint="put the query in quotes")
    if len(texts) > 1 and not any(map(str.isspace, "".join(texts))):
        run.out.note(f"{len(texts)} queries: {', '.join(map(repr, texts))}")
    chosen = options.choose_agent(run, agent)
    reader = options.choose_reader(run, chosen, owners, kinds)
    session_id = run.resolver.session(session).id if session else None
    if about is not None:
        scopes = run.service.scopes.readable(chosen, **reader)
        found = run.serve(
            lambda service: service.all_about(
                about, scopes, since=begin, until=end, session_id=session_id
            )
        )
        run.out.notes(found.notices)
        run.out.listing(
            found.hits,
            _HITS[1:],
            data=lambda hit: to_data(hit.fact, vectors=vectors),
            header=keys_of(Fact, vectors=vectors),
        )
        return
    wanted: dict[str, Any] = {
        "recipe": recipe,
        "top_k": top_k,
        "since": begin,
        "until": end,
        "session_id": session_id,
        "tags": tags or (),
        "key": key,
    }
    if why_not is not None:
        fact_id = run.resolver.fact(why_not).id
        scopes = run.service.scopes.readable(chosen, **reader)
        answer = run.serve(
            lambda service: service.miss_explainer.why_not(fact_id, texts[0], scopes, **wanted)
        )
        run.out.notes(answer.notices)
        if not run.out.data([answer]):
            _show_why_not(run, answer, chosen)
        return
    report = run.serve(
        lambda service: service.search(
            texts,
            agent_id=chosen.id,
            within=places,
            track=track,
            explain=explain,
            **reader,
            **wanted,
        ),
        on_demand=True,
    )
    run.out.notes(report.notices)
    if set(places) != {"facts"}:
        _list_memory(run, report)
    elif run.out.is_screen and report.hits:
        _show_hits(run, report.hits, texts, explain=explain)
    else:
        _list_hits(run, report, explain=explain, vectors=vectors)
    if explain:
        _print_remains(run, report)
    is_user_named = owners.user or owners.account or kinds
    found_any = report.hits or report.passages
    if not (found_any or run.out.is_data or is_user_named) and run.service.scopes.of_agent(
        chosen.id, [ScopeKind.USER]
    ):
        run.out.note("users' facts are searched only with --user")
    if not (found_any or run.out.is_data or run.service.scopes.of_agent(chosen.id, [])):
        run.out.note(f"{chosen.username} has no memory yet: form it with 'edenmem form --idle'")


def _parse_within(given: Sequence[str]) -> tuple[MemoryKind, ...]:
    """Return the kinds of memory that ``--in`` names, without repetition.

    Raises:
        UsageError: A kind is unknown, or none is given.
    """
    known: tuple[MemoryKind, ...] = get_args(MemoryKind)
    words = [word for each in given for word in each.split(",")]
    named = [word.strip().lower() for word in words if word.strip()]
    unknown = [each for each in named if each not in known]
    if unknown or not named:
        raise UsageError(
            f"--in takes {', '.join(known)}: {one_line(','.join(given), 60)!r}",
            hint=suggest(unknown[0] if unknown else "", known)
            or "separate several with commas: --in facts,reflections",
        )
    return tuple(each for each in known if each in named)


# -- hits ----------------------------------------------------------------------------------------

_HITS: list[Column[SearchHit]] = [
    Column("score", lambda hit: hit.score, "number"),
    Column("id", lambda hit: hit.fact.id, "id"),
    Column("scope", lambda hit: hit.fact.home, names="scope"),
    Column("when", lambda hit: hit.fact.recent_at, "time"),
    Column("unconfirmed", lambda hit: hit.fact.unconfirmed or None),
    Column("content", lambda hit: hit.fact.content, "text"),
]
_MEMORY: list[Column[MemoryHit]] = [
    Column("kind", lambda hit: hit.kind),
    Column("score", lambda hit: hit.score, "number"),
    Column("id", lambda hit: hit.id, "id"),
    Column("scope", lambda hit: hit.scope, names="scope"),
    Column("when", lambda hit: hit.at, "time"),
    Column("unconfirmed", lambda hit: hit.unconfirmed or None),
    Column("content", lambda hit: hit.content, "text"),
]


def _nothing(report: SearchReport) -> str:
    """Return what a search without results says."""
    return "nothing relevant" if report.nothing_relevant else "nothing found"


def _list_memory(run: Invocation, report: SearchReport) -> None:
    """Print results of several kinds: facts, reflections, texts."""
    if report.hits and report.passages:
        run.out.note(
            "scores are comparable within one kind only: facts from 0 to 1; reflections and texts"
            " by the words they share with the query, rare words more"
        )
    facts = [
        MemoryHit(
            kind="fact",
            id=hit.fact.id,
            scope=hit.fact.home,
            content=hit.fact.content,
            at=hit.fact.recent_at,
            score=hit.score,
            unconfirmed=hit.fact.unconfirmed,
        )
        for hit in report.hits
    ]
    found = [*facts, *report.passages]
    run.out.listing(found, _MEMORY, empty=_nothing(report), header=MemoryHit)


def _list_hits(run: Invocation, report: SearchReport, *, explain: bool, vectors: bool) -> None:
    """Print hits as a table or as data."""

    def data(hit: SearchHit) -> dict[str, Any]:
        fields = to_data(hit.fact, vectors=vectors) | {"score": hit.score}
        return fields | {"explain": to_data(hit)["explain"]} if explain else fields

    header = [*keys_of(Fact, vectors=vectors), "score", *(["explain"] if explain else [])]
    run.out.listing(report.hits, _HITS, data=data, empty=_nothing(report), header=header)
    if explain and not run.out.is_data:
        short = unique_beginnings([hit.fact.id for hit in report.hits])
        for place, hit in enumerate(report.hits, 1):
            run.out.safe(f"\n{place}. {short[hit.fact.id]}")
            _print_origin(run, hit)


def _show_hits(
    run: Invocation, hits: Sequence[SearchHit], queries: Sequence[str], *, explain: bool
) -> None:
    """Print each hit: a line with its score, and below it the full fact with highlighted words."""
    out = run.out
    label = run.service.scopes.labels([hit.fact.home for hit in hits]).within_agent
    short = unique_beginnings([hit.fact.id for hit in hits])
    for place, hit in enumerate(hits, 1):
        about = [short[hit.fact.id], one_line(label(hit.fact.home)), ago(hit.fact.recent_at)]
        about += filter(None, [one_line(describe_doubt(hit.fact.unconfirmed))])
        score = out.style(f"{hit.score:.3f}", "1")
        out.line(f"{place:>2}  {score}  {out.style(' · '.join(about), '2')}")
        for line in wrap_text(one_line(hit.fact.content), out.width - 4):
            marked, end = [], 0
            for begin, stop in match_spans(line, queries):
                marked += [line[end:begin], out.style(line[begin:stop], "1;33")]
                end = stop
            out.line("".join(["    ", *marked, line[end:]]))
        if explain:
            out.line()
            _print_origin(run, hit)
            out.line()


def _print_origin(run: Invocation, hit: SearchHit) -> None:
    """Print the stages of a hit, and the quote of the fact."""
    print_stages(run, hit.explain)
    if hit.fact.quote:
        run.out.paragraph("quote: ", f"“{hit.fact.quote}”")


def _print_remains(run: Invocation, report: SearchReport) -> None:
    """Print dropped candidates, and the duration of each stage."""
    timings = ", ".join(f"{stage} {ms:.1f} ms" for stage, ms in report.timings_ms.items())
    how = f"recipe {report.recipe}, {timings}"
    if run.out.is_data:
        run.out.notes(
            f"dropped: {dropped.fact_id}  {_reason(dropped)}" for dropped in report.dropped
        )
        run.out.note(how)
        return
    if report.dropped:
        stages = Counter(dropped.stage for dropped in report.dropped)
        counts = ", ".join(f"{count} at {stage}" for stage, count in stages.items())
        nearest = report.dropped[0]
        fact = run.resolver.fact(nearest.fact_id)
        short = unique_beginnings([nearest.fact_id])[nearest.fact_id]
        content = one_line(fact.content, 60 if run.out.is_screen else None)
        best = f"best: {short} {content!r}, {_reason(nearest)}"
        run.out.paragraph("dropped: ", f"{counts}; {best}")
    run.out.paragraph("", how)


def _reason(dropped: DroppedCandidate) -> str:
    """Return why a candidate was dropped, with the stage."""
    named = dropped.why.startswith(dropped.stage)
    return dropped.why if named else f"{dropped.stage}: {dropped.why}"


# -- stages --------------------------------------------------------------------------------------

#: Figures with a column of their own, or shown for the whole search.
_SHOWN_ELSEWHERE = frozenset(
    {"rank", "score", "threshold", "normalized", "passed", "recipe", "semantic_weight", "parts"}
)


def print_stages(run: Invocation, explain: Mapping[str, Mapping[str, Any]]) -> None:
    """Print a table of the stages: rank, score, threshold and other figures."""
    run.out.listing(list(explain.items()), _STAGES, empty="no stages")
    for stage, said in explain.items():
        if _is_long(said):
            run.out.paragraph(f"{stage}: ", _sum(said))


def _is_long(said: Mapping[str, Any]) -> bool:
    """Return whether a sum does not fit into its column on 80 columns."""
    return len(said.get("parts", {})) > 2


def _sum(said: Mapping[str, Any]) -> str:
    parts = said.get("parts", {})
    return " + ".join(f"{name} {figures(value)}" for name, value in parts.items())


def _rest(row: tuple[str, Mapping[str, Any]]) -> str:
    """Format the figures that have no column: sums, then names with values."""
    said = row[1]
    rest = {name: value for name, value in said.items() if name not in _SHOWN_ELSEWHERE}
    parts = (
        "below the threshold" if said.get("passed") is False and said.get("threshold") else "",
        "scored afterwards" if rest.pop("completed", False) else "",
        "" if _is_long(said) else _sum(said),
        figures(rest),
    )
    return ", ".join(filter(None, parts))


_STAGES: list[Column[tuple[str, Mapping[str, Any]]]] = [
    Column("stage", lambda row: row[0]),
    Column("rank", lambda row: row[1].get("rank"), "number"),
    Column("score", lambda row: row[1].get("score"), "number"),
    Column("threshold", lambda row: row[1].get("threshold"), "number"),
    Column("normalized", lambda row: row[1].get("normalized"), "number"),
    Column("details", _rest, "text"),
]


# -- why not -------------------------------------------------------------------------------------

#: Stages in the table of lists.
_LISTS = frozenset({"semantic", "text", "source"})
_PLACES: list[Column[ListPlace]] = [
    Column("list", lambda place: place.name),
    Column("rank", lambda place: place.rank, "number"),
    Column("depth", lambda place: place.depth, "number"),
    Column("score", lambda place: place.score, "number"),
    Column("threshold", lambda place: place.floor, "number"),
]


def _show_why_not(run: Invocation, answer: WhyNot, agent: Agent) -> None:
    """Print why a search with this agent does not return a fact."""
    home, why, advice = answer.fact.home, answer.why, answer.advice
    labels = run.service.scopes.labels([home])
    if answer.stage == "scope":  # by names, not IDs
        why = f"in {labels.full(home)}, which is not searched"
        advice = _scope_advice(home, labels, agent)
    run.out.fields(
        [
            ("fact", unique_beginnings([answer.fact.id])[answer.fact.id]),
            ("content", answer.fact.content),
            ("scope", labels.within_agent(home)),
            ("in scope", answer.in_scope),
            ("vector", answer.vector),
            ("recipe", answer.recipe),
        ]
    )
    if answer.lists:
        run.out.line()
        run.out.listing(answer.lists, _PLACES)
    stages = {name: said for name, said in answer.explain.items() if name not in _LISTS}
    if stages:
        run.out.line()
        print_stages(run, stages)
    run.out.line()
    title = "found" if answer.stage == "found" else f"dropped at {answer.stage}"
    run.out.fields([(title, why), ("fix", advice)])


def _scope_advice(scope: Scope, labels: Mapping[str, str], agent: Agent) -> str:
    """Return the options of a search that includes the scope."""
    option = {"user": "--user", "group": "--group", "shard": "--shard"}.get(scope.kind.value)
    words = ["--agent", labels[scope.agent_id]] if scope.agent_id != agent.id else []
    words += [option, labels[scope.owner]] if option and scope.owner else []
    include = f"include {scope.kind.value} in --scope, or omit --scope"
    return f"add {shlex.join(words)}; {include}" if words else include


# -- eval ------------------------------------------------------------------------------------------


def eval(
    run: Invocation,
    file: Annotated[str, typer.Argument(metavar="QUERIES", help="JSON Lines (- = stdin).")],
    recipes: Annotated[
        list[str] | None,
        typer.Option(
            "--recipe",
            metavar="NAME",
            help="Recipe to measure, such as convex+mmr (repeatable).  [default: all fusions]",
        ),
    ] = None,
    top_k: Annotated[
        int | None,
        typer.Option("--top-k", "-k", min=1, max=100, metavar="N", help="The k in recall@k."),
    ] = None,
) -> None:
    """Measure search recipes on labeled queries.

    Each line holds a query, its options as in 'edenmem search', and the relevant facts by ID or
    exact text, or an empty list if nothing answers the query. If lines name a kind, each kind is
    measured too. No accesses are counted.

    \b
    {"query": "when does the walk start", "agent": "mira", "user": "lena",
     "relevant": ["It starts at 17:30."], "kind": "date"}

    \b
    edenmem eval queries.jsonl
    edenmem eval queries.jsonl --recipe convex --recipe convex+rerank --top-k 5
    """
    with lines_of(file) as lines:
        labeled = run.service.evaluation.read(lines)
    run.out.notes(
        f"{line_location(unknown.line, file_name(file))}: {unknown.why}"
        for unknown in labeled.unknown
    )
    queries, names = labeled.queries, list(recipes or ())
    if queries:
        evaluation = run.serve(
            lambda service: service.evaluation.evaluate(queries, recipes=names, top_k=top_k)
        )
        _print_evaluation(run, evaluation)
    answered = len(queries) - labeled.unanswerable
    parts = (
        many(answered, "answerable query", "answerable queries"),
        f"{labeled.unanswerable} unanswerable (silent: no results)" if labeled.unanswerable else "",
        f"{len(labeled.lost)} skipped without a known label" if labeled.lost else "",
    )
    run.out.note(", ".join(filter(None, parts)))
    end_if(labeled.unknown)


def _print_evaluation(run: Invocation, evaluation: Evaluation) -> None:
    """Print the scores of each recipe, over all queries and by kind."""
    run.out.notes(evaluation.notices)
    has_kinds = any(score.kind for score in evaluation.scores)
    columns: list[Column[RecipeScore]] = [
        Column("recipe", lambda score: score.recipe),
        Column("kind", lambda score: (score.kind or "all") if has_kinds else None),
        Column(f"recall@{evaluation.top_k}", lambda score: _figure(score.recall), "number"),
        Column("MRR@10", lambda score: _figure(score.mrr), "number"),
        Column("nDCG@10", lambda score: _figure(score.ndcg), "number"),
        Column("queries", lambda score: score.queries, "number"),
        Column(
            "silent",
            lambda s: f"{s.silent} of {s.unanswerable}" if s.unanswerable else None,
            "number",
        ),
    ]
    run.out.listing(
        evaluation.scores, columns, data=lambda score: to_data(score) | {"top_k": evaluation.top_k}
    )


def _figure(value: float) -> float | None:
    return None if math.isnan(value) else value
