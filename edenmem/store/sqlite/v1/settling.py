"""Assignment of v1 memories to lists, for all staged documents in one pass.

The result does not depend on the order of the documents: among equal claims the lowest ID wins.
"""

from __future__ import annotations

import sqlite3

#: A repeated ID is invalid, and its document is named after its place among the duplicates.
_SAME_IDS = """
CREATE INDEX documents_by_id ON documents (collection, id, bad);
CREATE TEMP TABLE same AS
    SELECT d.number, row_number() OVER (
        PARTITION BY d.collection, d.id ORDER BY d.bad, d.number
    ) AS nth FROM documents d JOIN (
        SELECT collection, id FROM documents GROUP BY collection, id HAVING count(*) > 1
    ) USING (collection, id);
UPDATE documents SET bad = 2, id = documents.id || '#' || same.nth
    FROM same WHERE same.number = documents.number AND same.nth > 1;
DROP TABLE same;
"""

#: A memory without an agent belongs to the agent whose lists have it, if it is a single agent.
_ADOPTION = """
CREATE INDEX listed_by_id ON listed (id);
CREATE TEMP TABLE adopted AS
    SELECT d.number, min(x.agent) AS agent
    FROM documents d
    JOIN listed l ON l.id = d.id
    JOIN documents x ON x.number = l.lister AND NOT x.bad
    WHERE d.collection = 'memory_sessions' AND d.agent = '' AND NOT d.bad
    GROUP BY d.number HAVING count(DISTINCT x.agent) = 1;
UPDATE documents SET agent = adopted.agent FROM adopted WHERE adopted.number = documents.number;
DROP TABLE adopted;
DROP INDEX listed_by_id;
"""

_SCOPES = """
UPDATE documents SET bad = 1
    WHERE collection = 'memory_sessions' AND agent = '' AND NOT bad;
UPDATE documents SET scope = CASE
        WHEN collection = 'memory_user' THEN 'user/' || owner
        WHEN kind = 'active' AND :merge THEN 'agent'
        ELSE 'shard/' || owner
    END
    WHERE collection IN ('memory_user', 'memory_agent') AND NOT bad;
CREATE INDEX documents_by_agent ON documents (agent, collection, owner);
"""

#: Every listed ID once for each list, with its defect. A suggestion among facts stays in its list;
#: personal memory never moves to a shard. A memory without a type may belong to any kind of scope:
#: it goes to the narrowest kind with a list that has it.
_JUDGING = """
CREATE TABLE judged AS
    SELECT l.lister, l.role, l.id AS listed_id, min(l.place) AS place, count(*) AS times,
        CASE WHEN x.collection = 'memory_user' THEN 2 WHEN x.scope <> 'agent' THEN 1 ELSE 0
            END AS narrow,
        x.agent, x.scope, x.id AS lister_id, d.number AS memory, d.text, d.at, d.id,
        CASE
            WHEN d.number IS NULL THEN 'dangling'
            WHEN d.agent <> x.agent THEN 'foreign_agent'
            WHEN x.collection = 'memory_agent' AND d.kind NOT IN ('fact', 'suggestion', '')
                THEN 'wrong_type'
            WHEN d.kind NOT IN ('directive', 'fact', 'suggestion', '') THEN 'wrong_type'
            WHEN x.collection = 'memory_user' AND d.users <> ''
                AND instr(d.users, ',' || x.owner || ',') = 0 THEN 'foreign_user'
            ELSE ''
        END AS verdict
    FROM listed l
    JOIN documents x ON x.number = l.lister AND NOT x.bad
    LEFT JOIN documents d ON d.collection = 'memory_sessions' AND d.id = l.id AND NOT d.bad
    GROUP BY l.lister, l.role, l.id;
DROP TABLE listed;
CREATE INDEX judged_by_memory ON judged (memory);
UPDATE judged SET verdict = 'wider'
    FROM (
        SELECT j.memory, max(j.narrow) AS narrowest
        FROM judged j JOIN documents d ON d.number = j.memory
        WHERE j.verdict = '' AND d.kind = ''
        GROUP BY j.memory HAVING max(j.narrow) > min(j.narrow)
    ) AS many
    WHERE many.memory = judged.memory AND judged.verdict = '' AND judged.narrow < many.narrowest;
CREATE TABLE refused AS
    SELECT lister, role, place, listed_id AS id, verdict, memory FROM judged WHERE verdict <> '';
CREATE INDEX refused_by_lister ON refused (lister, role, place);
CREATE TABLE uses AS
    SELECT agent, scope, role, memory, min(lister_id) AS first, lister, place,
        sum(times) AS times, text, at, id
    FROM judged WHERE verdict = '' GROUP BY scope, role, memory;
DROP TABLE judged;
CREATE INDEX uses_by_memory ON uses (memory, role);
CREATE INDEX uses_in_order ON uses (agent, role, scope, text, at, id);
CREATE INDEX uses_of_list ON uses (lister, role, scope, place);
"""

#: Memories without an item of another kind, with the scope of the text that absorbed them.
_LEFTOVERS = """
CREATE TABLE homes (
    agent TEXT, owner TEXT, scope TEXT NOT NULL, PRIMARY KEY (agent, owner)
) STRICT, WITHOUT ROWID;
INSERT OR IGNORE INTO homes
    SELECT agent, CASE collection WHEN 'memory_user' THEN 'user/' ELSE 'shard/' END || owner, scope
    FROM documents WHERE scope <> '';
CREATE TABLE leftovers AS
    SELECT number, agent, collection, id,
        CASE WHEN bad = 2 THEN 'duplicate'
            WHEN number IN (SELECT number FROM bodies WHERE body IS NULL) THEN 'unreadable'
            ELSE 'bad' END AS cause, '' AS scope
    FROM documents WHERE bad
    UNION ALL
    SELECT number, agent, collection, id, 'episode', '' FROM documents
    WHERE collection = 'memory_sessions' AND NOT bad AND kind = 'episode'
    UNION ALL
    SELECT d.number, d.agent, d.collection, d.id,
        CASE
            WHEN d.number IN (SELECT memory FROM refused WHERE memory IS NOT NULL) THEN 'refused'
            WHEN d.kind = 'fact' AND x.scope IS NULL AND (d.owner <> '' OR NOT EXISTS (
                SELECT 1 FROM homes h
                WHERE h.agent = d.agent AND h.owner >= 'shard/' AND h.owner < 'shard0'
            )) THEN 'shardless'
            WHEN d.kind = 'fact' THEN 'unlisted'
            WHEN d.kind IN ('directive', 'suggestion') AND x.scope IS NOT NULL THEN 'absorbed'
            WHEN d.kind = 'directive' AND d.users <> '' AND d.sole = '' THEN 'shared'
            WHEN d.kind IN ('directive', 'suggestion') THEN 'orphan'
            ELSE 'unknown'
        END,
        coalesce(x.scope, '')
    FROM documents d
    LEFT JOIN homes x ON x.agent = d.agent AND x.owner = CASE d.kind
        WHEN 'directive' THEN 'user/' || d.sole
        WHEN 'suggestion' THEN 'shard/' || d.owner
        WHEN 'fact' THEN 'shard/' || d.owner
    END
    WHERE d.collection = 'memory_sessions' AND NOT d.bad AND d.kind <> 'episode'
        AND NOT EXISTS (SELECT 1 FROM uses WHERE uses.memory = d.number);
CREATE INDEX leftovers_in_order ON leftovers (agent, cause, scope, id);
CREATE INDEX leftovers_by_number ON leftovers (number);
PRAGMA analysis_limit = 1000;
ANALYZE;
"""


def settle(db: sqlite3.Connection, *, merge: bool) -> None:
    """Assign all memories, after staging; see `edenmem.store.v1.protocol.V1Stage`."""
    db.executescript(_SAME_IDS)
    if db.execute("SELECT 1 FROM documents WHERE agent = '' AND NOT bad LIMIT 1").fetchone():
        db.executescript(_ADOPTION)
    db.executescript(_SCOPES.replace(":merge", "1" if merge else "0"))
    db.executescript(_JUDGING)
    db.executescript(_LEFTOVERS)
