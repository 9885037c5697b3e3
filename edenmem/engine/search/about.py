"""Everything that is known about a person or thing: all facts with its name, by time.

A search ranks and cuts; a question such as "what do we know about Ben" needs every fact. So the
facts come from the text list alone, without a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from edenmem.engine.reports import SearchHit, SearchReport
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.search.request import validate_queries
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.search.text_ranking import coverage
from edenmem.store.protocol.store import batched

#: No limit; but Atlas returns no more from one search.
_ALL, _MOST_ON_ATLAS = 2**31, 10_000
_BATCH = 1000


def all_about(
    runtime: Runtime,
    name: str,
    scopes: Sequence[Scope],
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    session_id: str | None = None,
) -> SearchReport:
    """Find every fact with all words of a name, oldest first; counts no access. Blocks.

    A misspelled word matches as in a search.

    Args:
        runtime: The store and the settings.
        name: The name of a person or thing.
        scopes: The scopes to search.
        since: Only facts said at or after this time.
        until: Only facts said before this time.
        session_id: Only facts from this session.

    Raises:
        UsageError: the name is blank.
        StoreError: the store could not be searched.
    """
    (text,) = validate_queries([name])
    now = runtime.clock()
    filter = FactFilter(
        scopes=tuple(scopes), since=since, until=until, session_id=session_id, live_at=now
    )
    store = runtime.store
    (found,) = store.search.text_candidates(filter, [text], limit=_ALL)
    facts: dict[str, Fact] = {}
    for batch in batched([one.fact_id for one in found], _BATCH):
        facts |= store.memory.facts_by_ids(scopes, batch)
    shares = coverage(text, {fact_id: fact.content for fact_id, fact in facts.items()})
    whole = [fact for id, fact in facts.items() if shares[id] == 1.0 and not fact.has_expired(now)]
    whole.sort(key=lambda fact: (fact.dated_at, fact.id))
    cut = f"only the best {_MOST_ON_ATLAS:,} matches were read; narrow the search by scope or time"
    is_cut = len(found) == _MOST_ON_ATLAS and store.search.search_ability().kind == "atlas"
    return SearchReport(
        queries=(text,),
        recipe="text",
        hits=tuple(SearchHit(fact=fact, score=1.0) for fact in whole),
        notices=(cut,) if is_cut else (),
    )
