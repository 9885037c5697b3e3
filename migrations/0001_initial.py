"""The first schema.

SQLite: all tables. MongoDB: nothing; collections belong to the platform or are created with their
first document, and the store declares indexes as data.

Times are whole milliseconds since 1970 UTC. IDs are 24 hex digits. Lists are JSON arrays.
"""

from __future__ import annotations

from typing import Any

NO_WAY_BACK = "before the first schema there is nothing; remove the file instead"

_TABLES = """
CREATE TABLE IF NOT EXISTS migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    applied_at INTEGER NOT NULL
) STRICT;

-- What the platform owns ------------------------------------------------------------------------

CREATE TABLE IF NOT EXISTS agents (
    id TEXT PRIMARY KEY,
    username TEXT NOT NULL UNIQUE,
    username_folded TEXT NOT NULL,
    name TEXT NOT NULL,
    persona TEXT NOT NULL,
    owner TEXT,
    user_memory_enabled INTEGER NOT NULL,
    agent_memory_enabled INTEGER NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS agents_folded ON agents (username_folded);

CREATE TABLE IF NOT EXISTS users (
    id TEXT PRIMARY KEY,
    username TEXT NOT NULL UNIQUE,
    username_folded TEXT NOT NULL,
    eden_user_id TEXT,
    subscription_tier INTEGER NOT NULL,
    feature_flags TEXT NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS users_folded ON users (username_folded);
CREATE INDEX IF NOT EXISTS users_person ON users (eden_user_id) WHERE eden_user_id IS NOT NULL;

CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY,
    owner TEXT,
    group_id TEXT,
    name TEXT,
    name_folded TEXT,
    title TEXT,
    title_folded TEXT,
    status TEXT NOT NULL,
    platform TEXT,
    incognito INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    last_activity INTEGER,
    created_at INTEGER,
    last_memory_message_id TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sessions_activity ON sessions (coalesce(last_activity, -1) DESC, id);
CREATE INDEX IF NOT EXISTS sessions_group ON sessions (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS sessions_name ON sessions (name_folded) WHERE name_folded IS NOT NULL;
CREATE INDEX IF NOT EXISTS sessions_title ON sessions (title_folded)
    WHERE title_folded IS NOT NULL;

-- ``role`` is "agent" or "user"; ``place`` keeps the order in which they joined.
CREATE TABLE IF NOT EXISTS session_members (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('agent', 'user')),
    member_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (session_id, role, member_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS session_members_member ON session_members (member_id, role);

CREATE TABLE IF NOT EXISTS messages (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    role TEXT NOT NULL,
    content TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    sender TEXT,
    name TEXT,
    tool_calls TEXT,
    trigger INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS messages_order ON messages (session_id, created_at, id);

CREATE TABLE IF NOT EXISTS cached_contexts (
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    xml TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    built_at INTEGER NOT NULL,
    PRIMARY KEY (session_id, agent_id)
) STRICT, WITHOUT ROWID;

-- Memory ----------------------------------------------------------------------------------------

-- ``revision`` grows with every change in the scope. The counts are kept in the same transaction
-- as what they count, so that an overview need not count.
CREATE TABLE IF NOT EXISTS scopes (
    scope_id INTEGER PRIMARY KEY,
    agent_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('agent', 'shard', 'group', 'user', 'session')),
    owner TEXT NOT NULL,
    revision INTEGER NOT NULL DEFAULT 0,
    facts INTEGER NOT NULL DEFAULT 0,
    reflections INTEGER NOT NULL DEFAULT 0,
    pending INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER,
    UNIQUE (agent_id, kind, owner)
) STRICT;
CREATE INDEX IF NOT EXISTS scopes_owner ON scopes (owner) WHERE owner <> '';

CREATE TABLE IF NOT EXISTS embedding_models (
    model_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    dimensions INTEGER NOT NULL
) STRICT;

-- ``session_id`` is the source. ``recent_at`` is when the fact was made or last corrected.
CREATE TABLE IF NOT EXISTS facts (
    fact_no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    scope_id INTEGER NOT NULL REFERENCES scopes (scope_id),
    content TEXT NOT NULL,
    hash TEXT NOT NULL,
    formed_at INTEGER NOT NULL,
    updated_at INTEGER,
    recent_at INTEGER NOT NULL GENERATED ALWAYS AS (coalesce(updated_at, formed_at)) VIRTUAL,
    session_id TEXT,
    source_message_ids TEXT,
    version INTEGER NOT NULL,
    previous_content TEXT,
    access_count INTEGER NOT NULL,
    last_accessed_at INTEGER,
    private INTEGER NOT NULL,
    formation_id TEXT,
    model_id INTEGER REFERENCES embedding_models (model_id),
    UNIQUE (scope_id, hash)
) STRICT;
CREATE INDEX IF NOT EXISTS facts_recent ON facts (scope_id, recent_at DESC, id);
CREATE INDEX IF NOT EXISTS facts_session ON facts (session_id, scope_id)
    WHERE session_id IS NOT NULL;
CREATE INDEX IF NOT EXISTS facts_model ON facts (model_id, scope_id);

-- A table of its own: a page of facts then holds a hundred of them and not five.
CREATE TABLE IF NOT EXISTS vectors (
    fact_no INTEGER PRIMARY KEY REFERENCES facts (fact_no) ON DELETE CASCADE,
    vector BLOB NOT NULL
) STRICT;

-- One bit for each dimension, in the order in which a search reads them.
CREATE TABLE IF NOT EXISTS vector_codes (
    scope_id INTEGER NOT NULL,
    model_id INTEGER NOT NULL,
    fact_no INTEGER NOT NULL,
    code BLOB NOT NULL,
    PRIMARY KEY (scope_id, model_id, fact_no)
) STRICT, WITHOUT ROWID;

-- ``scope`` holds one word, the scope's number, so that the index itself keeps scopes apart.
CREATE VIRTUAL TABLE IF NOT EXISTS facts_text USING fts5 (
    scope, content, content = '',
    tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* Co Mn Mc'"
);
CREATE VIRTUAL TABLE IF NOT EXISTS facts_words USING fts5vocab (facts_text, 'row');

-- The buffer of a scope is its reflections that are not absorbed.
CREATE TABLE IF NOT EXISTS reflections (
    reflection_no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    scope_id INTEGER NOT NULL REFERENCES scopes (scope_id),
    content TEXT NOT NULL,
    formed_at INTEGER NOT NULL,
    session_id TEXT,
    source_message_ids TEXT,
    version INTEGER NOT NULL,
    updated_at INTEGER,
    absorbed INTEGER NOT NULL,
    absorbed_at INTEGER,
    consolidated_into TEXT,
    private INTEGER NOT NULL,
    formation_id TEXT,
    propagated_from TEXT
) STRICT;
CREATE INDEX IF NOT EXISTS reflections_formed ON reflections (scope_id, formed_at DESC, id);
CREATE INDEX IF NOT EXISTS reflections_pending ON reflections (scope_id, formed_at)
    WHERE absorbed = 0;

CREATE TABLE IF NOT EXISTS consolidations (
    scope_id INTEGER PRIMARY KEY REFERENCES scopes (scope_id),
    id TEXT NOT NULL UNIQUE,
    content TEXT NOT NULL,
    words INTEGER NOT NULL,
    version INTEGER NOT NULL,
    word_limit INTEGER NOT NULL,
    absorbed_ids TEXT,
    last_consolidated_at INTEGER,
    updated_at INTEGER
) STRICT;

CREATE TABLE IF NOT EXISTS policies (
    scope_id INTEGER PRIMARY KEY REFERENCES scopes (scope_id),
    id TEXT NOT NULL UNIQUE,
    memory_instructions TEXT,
    consolidation_instructions TEXT,
    consolidate_at INTEGER,
    word_limit INTEGER,
    fact_buffer_max INTEGER,
    fast_model TEXT,
    slow_model TEXT,
    active INTEGER NOT NULL,
    private INTEGER NOT NULL,
    propagate INTEGER,
    version INTEGER NOT NULL,
    updated_at INTEGER
) STRICT;

-- What happened ---------------------------------------------------------------------------------

-- ``snapshot`` is the whole of a fact that was removed, as JSON with its vector.
CREATE TABLE IF NOT EXISTS history (
    history_no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    target_type TEXT NOT NULL,
    target_id TEXT NOT NULL,
    scope_id INTEGER NOT NULL REFERENCES scopes (scope_id),
    version INTEGER NOT NULL,
    content TEXT NOT NULL,
    at INTEGER NOT NULL,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    change_id TEXT,
    absorbed_ids TEXT,
    snapshot BLOB
) STRICT;
CREATE INDEX IF NOT EXISTS history_target ON history (target_id, target_type);
CREATE INDEX IF NOT EXISTS history_texts ON history (scope_id, version)
    WHERE target_type = 'consolidation';
CREATE INDEX IF NOT EXISTS history_absence ON history (scope_id, at)
    WHERE action IN ('delete', 'restore') AND target_type = 'fact';

CREATE TABLE IF NOT EXISTS audit (
    audit_no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    change_set_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    target_type TEXT NOT NULL,
    target_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scope_id INTEGER REFERENCES scopes (scope_id),
    before TEXT,
    after TEXT,
    reason TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS audit_time ON audit (at);
CREATE INDEX IF NOT EXISTS audit_agent ON audit (agent_id, at);
CREATE INDEX IF NOT EXISTS audit_target ON audit (target_id, at);
CREATE INDEX IF NOT EXISTS audit_reflections ON audit (scope_id, at)
    WHERE target_type = 'reflection';

-- Formation -------------------------------------------------------------------------------------

CREATE TABLE IF NOT EXISTS formations (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('claimed', 'released', 'recorded', 'applied', 'failed')),
    trigger TEXT NOT NULL,
    last_message_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    worker TEXT,
    lease_until INTEGER,
    not_before INTEGER,
    attempts INTEGER NOT NULL,
    error TEXT,
    decisions TEXT NOT NULL,
    usage TEXT NOT NULL,
    counts TEXT NOT NULL,
    changes BLOB,
    UNIQUE (session_id, agent_id, seq)
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS formations_unfinished ON formations (session_id, agent_id)
    WHERE status IN ('claimed', 'released', 'recorded');
CREATE INDEX IF NOT EXISTS formations_status ON formations (status, created_at);
CREATE INDEX IF NOT EXISTS formations_agent ON formations (agent_id, created_at);
CREATE INDEX IF NOT EXISTS formations_time ON formations (created_at, id);

-- The key is what keeps a message from being formed twice for one agent.
CREATE TABLE IF NOT EXISTS formation_messages (
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    formation_id TEXT NOT NULL REFERENCES formations (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    PRIMARY KEY (session_id, agent_id, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS formation_messages_formation
    ON formation_messages (formation_id, place);
"""


def up_sqlite(connection: Any) -> None:
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def up_mongo(database: Any) -> None:
    """Do nothing; see the module."""
