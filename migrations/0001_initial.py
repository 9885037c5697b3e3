"""The schema.

SQLite: all tables. Times are whole milliseconds since 1970 UTC, IDs are 24 hex digits, lists are
JSON arrays. The optional index of source messages is created by ``index create facts_source``.

MongoDB: collections belong to the platform or are created with their first document, and the store
declares indexes as data. Facts of the platform get the fields that they lack: the hash of the text,
the version, the time of formation, and the access count. Reads work without them, but writes
benefit from them. Batches by ID, each update conditional on the text, so that the step can be
interrupted and repeated during other writes; a fact with a text that its scope already has stays
unchanged, since the unique key rejects its hash.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

NO_WAY_BACK = "before the first schema there is nothing; remove the file instead"

_TABLES = """
CREATE TABLE migrations (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL,
    applied_at INTEGER NOT NULL
) STRICT;

-- Host data ------------------------------------------------------------------------

CREATE TABLE agents (
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
CREATE INDEX agents_folded ON agents (username_folded);

CREATE TABLE users (
    id TEXT PRIMARY KEY,
    username TEXT NOT NULL UNIQUE,
    username_folded TEXT NOT NULL,
    eden_user_id TEXT,
    subscription_tier INTEGER NOT NULL,
    feature_flags TEXT NOT NULL,
    deleted INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX users_folded ON users (username_folded);
CREATE INDEX users_person ON users (eden_user_id) WHERE eden_user_id IS NOT NULL;

-- ``settled`` is the version of the rules by which a session has no work for a cold run. Triggers
-- clear it, in the same transaction, on every change that may add work; ``activity`` counts these
-- changes, so that a mark from an earlier read is rejected.
CREATE TABLE sessions (
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
    last_memory_message_id TEXT,
    parent TEXT,
    imported INTEGER NOT NULL DEFAULT 0,
    activity INTEGER NOT NULL DEFAULT 0,
    settled TEXT,
    quiet_since INTEGER GENERATED ALWAYS AS (coalesce(last_activity, -1)) VIRTUAL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_activity ON sessions (coalesce(last_activity, -1) DESC, id);
CREATE INDEX sessions_group ON sessions (group_id) WHERE group_id IS NOT NULL;
CREATE INDEX sessions_name ON sessions (name_folded) WHERE name_folded IS NOT NULL;
CREATE INDEX sessions_title ON sessions (title_folded)
    WHERE title_folded IS NOT NULL;
CREATE INDEX sessions_quiet ON sessions (settled, quiet_since, id);

-- ``role`` is "agent" or "user"; ``place`` keeps the order in which they joined.
CREATE TABLE session_members (
    session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('agent', 'user')),
    member_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (session_id, role, member_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_members_member ON session_members (member_id, role);

CREATE TABLE messages (
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
CREATE INDEX messages_order ON messages (session_id, created_at, id);
CREATE INDEX messages_senders ON messages (session_id, sender)
    WHERE role = 'user' AND trigger = 0 AND sender IS NOT NULL;

CREATE TABLE cached_contexts (
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    xml TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    built_at INTEGER NOT NULL,
    shown BLOB NOT NULL,
    PRIMARY KEY (session_id, agent_id)
) STRICT, WITHOUT ROWID;

-- Memory ----------------------------------------------------------------------------------------

-- ``revision`` grows with every change in the scope. The counts are kept in the same transaction
-- as what they count, so that an overview need not count. ``codes_revision`` changes unless codes
-- of vectors are only appended, so that a search with codes in memory reads the appended ones.
CREATE TABLE scopes (
    scope_id INTEGER PRIMARY KEY,
    agent_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('agent', 'shard', 'group', 'user', 'session')),
    owner TEXT NOT NULL,
    revision INTEGER NOT NULL DEFAULT 0,
    facts INTEGER NOT NULL DEFAULT 0,
    reflections INTEGER NOT NULL DEFAULT 0,
    pending INTEGER NOT NULL DEFAULT 0,
    updated_at INTEGER,
    codes_revision INTEGER NOT NULL DEFAULT 0,
    UNIQUE (agent_id, kind, owner)
) STRICT;
CREATE INDEX scopes_owner ON scopes (owner) WHERE owner <> '';

CREATE TABLE embedding_models (
    model_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    UNIQUE (name, dimensions)
) STRICT;

-- ``session_id`` is the source. ``changed_at`` is the time of the last change of the text, and
-- ``recent_at`` orders recent facts: by an edit, else by what was said, else by the last change.
CREATE TABLE facts (
    fact_no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    scope_id INTEGER NOT NULL REFERENCES scopes (scope_id),
    content TEXT NOT NULL,
    hash TEXT NOT NULL,
    formed_at INTEGER NOT NULL,
    updated_at INTEGER,
    said_at INTEGER,
    edited_at INTEGER,
    changed_at INTEGER NOT NULL GENERATED ALWAYS AS (coalesce(updated_at, formed_at)) VIRTUAL,
    recent_at INTEGER NOT NULL GENERATED ALWAYS AS
        (coalesce(edited_at, said_at, updated_at, formed_at)) VIRTUAL,
    session_id TEXT,
    source_message_ids TEXT,
    version INTEGER NOT NULL,
    previous_content TEXT,
    access_count INTEGER NOT NULL,
    last_accessed_at INTEGER,
    private INTEGER NOT NULL,
    formation_id TEXT,
    model_id INTEGER REFERENCES embedding_models (model_id),
    related_users TEXT,
    quote TEXT NOT NULL DEFAULT '',
    unconfirmed TEXT NOT NULL DEFAULT '',
    key TEXT,
    tags TEXT,
    metadata TEXT,
    expires_at INTEGER,
    value TEXT,
    UNIQUE (scope_id, hash)
) STRICT;
CREATE UNIQUE INDEX facts_key ON facts (scope_id, key) WHERE key IS NOT NULL;
CREATE INDEX facts_expiry ON facts (expires_at, scope_id) WHERE expires_at IS NOT NULL;
CREATE INDEX facts_recent ON facts (scope_id, recent_at DESC, id);
CREATE INDEX facts_session ON facts (session_id, scope_id)
    WHERE session_id IS NOT NULL;
CREATE INDEX facts_model ON facts (model_id, scope_id);
CREATE INDEX facts_related ON facts (related_users) WHERE related_users IS NOT NULL;

-- A table of its own: a page of facts then holds a hundred of them and not five.
CREATE TABLE vectors (
    fact_no INTEGER PRIMARY KEY REFERENCES facts (fact_no) ON DELETE CASCADE,
    vector BLOB NOT NULL
) STRICT;

-- One bit for each dimension, in the order in which a search reads them.
CREATE TABLE vector_codes (
    scope_id INTEGER NOT NULL,
    model_id INTEGER NOT NULL,
    fact_no INTEGER NOT NULL,
    code BLOB NOT NULL,
    PRIMARY KEY (scope_id, model_id, fact_no)
) STRICT, WITHOUT ROWID;

-- Vectors of another model, while a store switches to it. At most one switch at a time.
CREATE TABLE staged_vectors (
    fact_no INTEGER PRIMARY KEY REFERENCES facts (fact_no) ON DELETE CASCADE,
    model_id INTEGER NOT NULL REFERENCES embedding_models (model_id),
    vector BLOB NOT NULL
) STRICT;
CREATE TABLE vector_switch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    model TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    previous TEXT NOT NULL,
    phase TEXT NOT NULL
        CHECK (phase IN ('filling', 'switched', 'settling', 'clearing', 'abandoning')),
    begun_at INTEGER NOT NULL
) STRICT;

-- Words are split, stemmed and joined with their scope before they are stored.
CREATE VIRTUAL TABLE facts_text USING fts5 (
    content, content = '',
    tokenize = "unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc'"
);
CREATE VIRTUAL TABLE facts_words USING fts5vocab (facts_text, 'row');
-- A search looks for each word in each segment: half as many as by default.
INSERT INTO facts_text (facts_text, rank) VALUES ('automerge', 2), ('crisismerge', 4);

-- The buffer of a scope is its reflections that are not absorbed. ``place`` is the position among
-- reflections of the same time.
CREATE TABLE reflections (
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
    propagated_from TEXT,
    related_users TEXT,
    place INTEGER NOT NULL DEFAULT 0,
    said_at INTEGER,
    unconfirmed TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX reflections_formed ON reflections (scope_id, formed_at DESC, id);
CREATE INDEX reflections_pending ON reflections (scope_id, formed_at)
    WHERE absorbed = 0;
CREATE INDEX reflections_session ON reflections (session_id) WHERE session_id IS NOT NULL;
CREATE INDEX reflections_propagated ON reflections (reflection_no)
    WHERE propagated_from IS NOT NULL;
CREATE INDEX reflections_related ON reflections (related_users) WHERE related_users IS NOT NULL;

-- Items in doubt that wait for review: no memory, so no index for search has their texts.
CREATE TABLE held (
    held_no INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    scope_id INTEGER NOT NULL REFERENCES scopes (scope_id),
    kind TEXT NOT NULL CHECK (kind IN ('fact', 'reflection')),
    content TEXT NOT NULL,
    quote TEXT NOT NULL,
    reasons TEXT NOT NULL,
    source_message_ids TEXT,
    private INTEGER NOT NULL,
    formation_id TEXT,
    session_id TEXT,
    held_at INTEGER NOT NULL,
    said_at INTEGER
) STRICT;
CREATE INDEX held_scope ON held (scope_id, held_at DESC, id);
CREATE INDEX held_session ON held (session_id);

CREATE TABLE consolidations (
    scope_id INTEGER PRIMARY KEY REFERENCES scopes (scope_id),
    id TEXT NOT NULL UNIQUE,
    content TEXT NOT NULL,
    words INTEGER NOT NULL,
    version INTEGER NOT NULL,
    word_limit INTEGER NOT NULL,
    absorbed_ids TEXT,
    last_consolidated_at INTEGER,
    updated_at INTEGER,
    unpropagated TEXT,
    fixed TEXT,
    failed_drafts TEXT
) STRICT;
CREATE INDEX consolidations_unpropagated ON consolidations (scope_id)
    WHERE unpropagated IS NOT NULL;

CREATE TABLE policies (
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
    updated_at INTEGER,
    orders INTEGER,
    review TEXT
) STRICT;

-- What happened ---------------------------------------------------------------------------------

-- ``snapshot`` is the whole of a fact that was removed, as JSON with its vector.
CREATE TABLE history (
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
    fields TEXT,
    snapshot BLOB
) STRICT;
CREATE INDEX history_scope ON history (scope_id);
CREATE INDEX history_target ON history (target_id, target_type);
CREATE INDEX history_texts ON history (scope_id, version)
    WHERE target_type = 'consolidation';
CREATE INDEX history_absence ON history (scope_id, at)
    WHERE action IN ('delete', 'restore') AND target_type = 'fact';

CREATE TABLE audit (
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
    reason TEXT NOT NULL,
    undoes TEXT,
    place INTEGER NOT NULL,
    salts TEXT NOT NULL,
    erased TEXT
) STRICT;
CREATE INDEX audit_time ON audit (at);
CREATE INDEX audit_agent ON audit (agent_id, at);
CREATE INDEX audit_target ON audit (target_id, at);
CREATE INDEX audit_scope ON audit (scope_id, at) WHERE scope_id IS NOT NULL;
CREATE INDEX audit_reflections ON audit (scope_id, at)
    WHERE target_type = 'reflection';
CREATE INDEX audit_reverts ON audit (scope_id, at) WHERE action = 'revert_consolidation';
CREATE INDEX audit_run ON audit (json_extract(actor, '$.run_id'), at)
    WHERE json_extract(actor, '$.run_id') IS NOT NULL;
CREATE INDEX audit_actor ON audit (json_extract(actor, '$.name'), at);

-- Seals of the log, as JSON.
CREATE TABLE seals (number INTEGER PRIMARY KEY, document TEXT NOT NULL) STRICT;

-- ``document`` is the run as JSON; the other columns are for lookups.
CREATE TABLE migration_runs (
    id TEXT PRIMARY KEY,
    started_at INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE migration_leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE forgettings (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    begun_at INTEGER NOT NULL,
    closed_at INTEGER,
    counts TEXT NOT NULL
) STRICT, WITHOUT ROWID;
-- Hashes of forgotten scopes and sources, and of names of the subject.
CREATE TABLE forgetting_blocks (
    key TEXT NOT NULL,
    forgetting_id TEXT NOT NULL REFERENCES forgettings (id) ON DELETE CASCADE,
    PRIMARY KEY (key, forgetting_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX forgetting_blocks_of ON forgetting_blocks (forgetting_id);
CREATE TABLE forgotten_messages (id TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;

-- Formation -------------------------------------------------------------------------------------

CREATE TABLE formations (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN
            ('claimed', 'released', 'recorded', 'applied', 'failed', 'superseded')),
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
    changes TEXT,
    superseded_message_ids TEXT,
    next_step TEXT NOT NULL DEFAULT '',
    UNIQUE (session_id, agent_id, seq)
) STRICT;
CREATE UNIQUE INDEX formations_unfinished ON formations (session_id, agent_id)
    WHERE status IN ('claimed', 'released', 'recorded');
CREATE INDEX formations_status ON formations (status, created_at);
CREATE INDEX formations_agent ON formations (agent_id, created_at);
CREATE INDEX formations_time ON formations (created_at, id);

-- The key is what keeps a message from being formed twice for one agent.
CREATE TABLE formation_messages (
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    message_id TEXT NOT NULL,
    formation_id TEXT NOT NULL REFERENCES formations (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    PRIMARY KEY (session_id, agent_id, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX formation_messages_formation
    ON formation_messages (formation_id, place);

-- Use of models and of the server ----------------------------------------------------------------

-- ``calls`` is a JSON array like the column ``usage`` of formations.
CREATE TABLE usage_entries (
    id TEXT PRIMARY KEY,
    at INTEGER NOT NULL,
    agent_id TEXT NOT NULL,
    work TEXT NOT NULL,
    calls TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_entries_time ON usage_entries (at);
CREATE INDEX usage_entries_agent ON usage_entries (agent_id, at);

CREATE TABLE access_tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    digest TEXT NOT NULL,
    agents TEXT NOT NULL,
    user_id TEXT,
    can_write INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    expires_at INTEGER,
    last_used_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE daily_use (
    day TEXT NOT NULL,
    holder TEXT NOT NULL,
    tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    PRIMARY KEY (day, holder)
) STRICT, WITHOUT ROWID;

-- What left the engine: replies, and the lists that they share. ``keys`` finds the lists of a fact,
-- reflection, text or scope. ``last_day`` is the start of the day of the last reply.
CREATE TABLE told_replies (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    session_id TEXT,
    user_id TEXT,
    message_id TEXT,
    context TEXT NOT NULL,
    found TEXT NOT NULL,
    at INTEGER NOT NULL,
    built_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX told_replies_time ON told_replies (at, id);
CREATE INDEX told_replies_session ON told_replies (session_id, at, id);
CREATE INDEX told_replies_user ON told_replies (user_id, at, id);
CREATE INDEX told_replies_agent ON told_replies (agent_id, at, id);
CREATE INDEX told_replies_context ON told_replies (context);
CREATE INDEX told_replies_found ON told_replies (found);
CREATE TABLE told_lists (
    id TEXT PRIMARY KEY,
    items BLOB NOT NULL,
    last_day INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX told_lists_day ON told_lists (last_day);
CREATE TABLE told_keys (
    key TEXT NOT NULL,
    list_id TEXT NOT NULL REFERENCES told_lists (id) ON DELETE CASCADE,
    PRIMARY KEY (key, list_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX told_keys_list ON told_keys (list_id);

-- Triggers ------------------------------------------------------------------------------------

CREATE TRIGGER stirred_by_message AFTER INSERT ON messages BEGIN
    UPDATE sessions SET activity = activity + 1, settled = NULL WHERE id = NEW.session_id; END;
CREATE TRIGGER stirred_by_agent AFTER INSERT ON session_members WHEN NEW.role = 'agent' BEGIN
    UPDATE sessions SET activity = activity + 1, settled = NULL WHERE id = NEW.session_id; END;
CREATE TRIGGER stirred_by_claim AFTER INSERT ON formations BEGIN
    UPDATE sessions SET activity = activity + 1, settled = NULL WHERE id = NEW.session_id; END;
CREATE TRIGGER stirred_by_status AFTER UPDATE OF status, superseded_message_ids ON formations
    WHEN NEW.status <> OLD.status
    OR NEW.superseded_message_ids IS NOT OLD.superseded_message_ids BEGIN
    UPDATE sessions SET activity = activity + 1, settled = NULL WHERE id = NEW.session_id; END;
CREATE TRIGGER stirred_by_new_agent AFTER INSERT ON agents BEGIN
    UPDATE sessions SET activity = activity + 1, settled = NULL WHERE id IN
        (SELECT session_id FROM session_members WHERE member_id = NEW.id AND role = 'agent'); END;
CREATE TRIGGER stirred_by_change_of_agent AFTER UPDATE OF deleted ON agents BEGIN
    UPDATE sessions SET activity = activity + 1, settled = NULL WHERE id IN
        (SELECT session_id FROM session_members WHERE member_id = NEW.id AND role = 'agent'); END;
CREATE TRIGGER stirred_by_removal AFTER DELETE ON formations BEGIN
    UPDATE sessions SET activity = activity + 1, settled = NULL WHERE id = OLD.session_id; END;

-- Codes of a scope and model are sorted by the number of their facts.
CREATE TRIGGER vector_codes_gone AFTER DELETE ON vector_codes BEGIN
    UPDATE scopes SET codes_revision = codes_revision + 1 WHERE scope_id = OLD.scope_id; END;
CREATE TRIGGER vector_codes_changed AFTER UPDATE ON vector_codes BEGIN
    UPDATE scopes SET codes_revision = codes_revision + 1 WHERE scope_id = OLD.scope_id; END;
"""

_FACTS = "memory2_facts"
_FIELDS = ("hash", "version", "access_count", "formed_at")
_BATCH = 500


def up_sqlite(connection: Any) -> None:
    known = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrations'").fetchone()
    if known:
        return
    for statement in _TABLES.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def up_mongo(database: Any) -> None:
    from pymongo import UpdateOne
    from pymongo.errors import BulkWriteError

    facts = database[_FACTS]
    last: Any = None
    while True:
        lacking: dict[str, Any] = {"$or": [{field: None} for field in _FIELDS]}
        if last is not None:
            lacking["_id"] = {"$gt": last}
        documents = list(facts.find(lacking, {"embedding": 0}).sort("_id", 1).limit(_BATCH))
        if not documents:
            return
        updates = [
            UpdateOne(
                {"_id": document["_id"], "content": document.get("content")},
                {"$set": _missing(document)},
            )
            for document in documents
        ]
        try:
            facts.bulk_write(updates, ordered=False)
        except BulkWriteError as error:
            refused = error.details.get("writeErrors") or []
            if any(each.get("code") != 11000 for each in refused) or not refused:
                raise
        last = documents[-1]["_id"]


def _missing(document: dict[str, Any]) -> dict[str, Any]:
    content = document.get("content")
    made = document.get("createdAt")
    if not isinstance(made, datetime):
        made = getattr(document["_id"], "generation_time", datetime(1970, 1, 1, tzinfo=UTC))
    raw = (content if isinstance(content, str) else "").encode("utf-8", "surrogatepass")
    wanted = {
        "hash": hashlib.md5(raw, usedforsecurity=False).hexdigest(),
        "version": 1,
        "access_count": 0,
        "formed_at": made,
    }
    return {field: value for field, value in wanted.items() if document.get(field) is None}
