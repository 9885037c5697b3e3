"""One hybrid search with edenmem as a library, in a new process: ``library.py FILE QUERY.json``.

``library.py FILE QUERY.json memory`` prints the private memory after the search, in MiB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from edenmem.engine.runtime.concurrency import run
from edenmem.engine.runtime.runtime import Runtime
from edenmem.engine.search.searcher import Searcher
from edenmem.models.scope import Scope, ScopeKind
from edenmem.settings.schema import Settings
from edenmem.store.sqlite import SqliteStore


def main() -> None:
    """Answer the query of a file, as JSON."""
    query = json.loads(Path(sys.argv[2]).read_bytes())
    scopes = []
    for key in query["scopes"]:
        kind, agent, owner = (*key.split(":"), "")[:3]
        scopes.append(Scope(ScopeKind(kind), agent, owner))
    store = SqliteStore(Path(sys.argv[1]))
    searcher = Searcher(Runtime(store, Settings()))
    report = run(
        searcher.search(
            [query["text"]],
            scopes,
            recipe="convex",
            vectors=[bytes.fromhex(query["vector"])],
            vector_model=query["model"],
            track=query["track"],
        )
    )
    if sys.argv[3:] == ["memory"]:
        from tests.benchmarks.memory import private

        sys.stdout.write(str(private()))
    else:
        sys.stdout.write(json.dumps([hit.fact.id for hit in report.hits]))
    store.database.close()


if __name__ == "__main__":
    main()
