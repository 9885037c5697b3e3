"""Finish interrupted writes on MongoDB before the change to transactions.

Before, a change had several steps: an audit entry "pending", the writes, and the entry as "done".
A text had a mark until the flags of its reflections matched. A crash left such entries and marks.
This step sets the flags, and marks entries of completed changes as "done"; entries of missing
changes are removed, and entries with overwritten results become "unfinished". No older edenmem may
run at the same time.

Afterwards the server rejects an older edenmem, whose changes start with a "pending" entry: a
validation rule of the collection forbids these. Without the privilege ``collMod`` (part of
``dbAdmin``) the rule is omitted.

SQLite had transactions before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo.errors import OperationFailure

Document = dict[str, Any]

_OWNER_FIELDS = ("user_id", "group_id", "shard")
_PART = 1000


def up_sqlite(connection: Any) -> None:
    """Do nothing; see the module."""


def down_sqlite(connection: Any) -> None:
    """Do nothing; see the module."""


def up_mongo(database: Any) -> None:
    texts = database["memory2_consolidated"]
    for document in texts.find({"absorbing": {"$exists": True}}):
        _set_flags(database, document, document.get("absorbed_ids"), absorbed=True)
    for document in texts.find({"releasing": {"$exists": True}}):
        _set_flags(database, document, document["releasing"], absorbed=False)
    gone = {"$unset": {"absorbing": "", "releasing": ""}}
    for mark in ("absorbing", "releasing"):
        texts.update_many({mark: {"$exists": True}}, gone)
    audit = database["memory2_audit"]
    for entry in list(audit.find({"status": "pending"}).sort([("at", 1), ("_id", 1)])):
        try:
            status = "done" if _WAS_MADE[entry["action"]](database, entry) else ""
            if status:
                _touch(database, entry)
        except (
            KeyError,
            TypeError,
            AttributeError,
            ValueError,
        ):  # overwritten, or not written by edenmem
            status = "unfinished"
        if status:
            audit.update_one({"_id": entry["_id"]}, {"$set": {"status": status}})
        else:
            audit.delete_one({"_id": entry["_id"], "status": "pending"})
    if "edenmem_audit_pending" in audit.index_information():
        audit.drop_index("edenmem_audit_pending")
    _set_rule(database, {"status": {"$ne": "pending"}})


def down_mongo(database: Any) -> None:
    """Allow writes of an older edenmem again; it can read the current documents."""
    _set_rule(database, {})


def _set_rule(database: Any, rule: Document) -> None:
    """Set the validation rule of the log."""
    if "memory2_audit" not in database.list_collection_names():
        database.create_collection("memory2_audit")
    try:
        database.command("collMod", "memory2_audit", validator=rule, validationLevel="moderate")
    except OperationFailure as error:
        if error.code not in (13, 8000):  # not authorized; on Atlas the latter
            raise


# -- flags ---------------------------------------------------------------------------------------


def _set_flags(database: Any, text: Document, ids: Any, *, absorbed: bool) -> None:
    version = text.get("version") or 0
    fields: Document = {"absorbed": False, "absorbed_at": None, "consolidated_into": None}
    if absorbed:
        at = text.get("last_consolidated_at") or datetime.now(UTC)
        fields = {"absorbed": True, "absorbed_at": at, "consolidated_into": text["_id"]}
    ids = ids if isinstance(ids, list) else []
    for start in range(0, len(ids), _PART):
        database["memory2_reflections"].update_many(
            {
                "_id": {"$in": ids[start : start + _PART]},
                "absorbed": {"$ne": True} if absorbed else True,
                "text_version": {"$not": {"$gte": version}},
            },
            {"$set": {**fields, "text_version": version}},
        )


# -- completed changes ---------------------------------------------------------------------------


def _find(database: Any, collection: str, entry: Document) -> Document | None:
    found: Document | None = database[collection].find_one({"_id": entry["target_id"]})
    return found


def _by_this(database: Any, entry: Document, kind: str) -> list[Document]:
    """Return the versions of a change in the history."""
    key = {"target_type": kind, "target_id": entry["target_id"], "change_id": entry["_id"]}
    return list(database["memory2_history"].find(key))


def _remembers(document: Document | None, entry: Document) -> bool:
    return document is not None and entry["_id"] in (document.get("change_ids") or ())


def _fact_added(database: Any, entry: Document) -> bool:
    fact = _find(database, "memory2_facts", entry)
    if fact is not None and fact.get("last_change_id") == entry["_id"]:
        if fact.get("life"):
            _keep_restored(database, entry, fact)
        return True
    return bool(_by_this(database, entry, "fact"))


def _keep_restored(database: Any, entry: Document, fact: Document) -> None:
    """Add the version of a restored fact to the history."""
    made, version, life = fact["last_version"], fact["version"], fact["life"]
    target = str(fact["_id"])
    document = {
        "target_type": "fact",
        "target_id": fact["_id"],
        **{name: entry[name] for name in ("agent_id", "scope_key", "scope", "owner")},
        "version": version,
        "life": life,
        "content": fact["content"],
        **{name: made[name] for name in ("at", "action", "actor")},
        "change_id": entry["_id"],
        "absorbed_ids": [],
        "createdAt": made["at"],
        "updatedAt": made["at"],
    }
    key = {"_id": ObjectId(_derived("history", "fact", target, str(version), str(life)))}
    database["memory2_history"].update_one(key, {"$setOnInsert": document}, upsert=True)


def _fact_revised(database: Any, entry: Document) -> bool:
    if entry.get("before") is None:
        return _fact_added(database, entry)
    if entry.get("after") is None:  # removed in favour of a fact with the new text
        return _fact_removed(database, entry)
    fact = _find(database, "memory2_facts", entry)
    if fact is not None and fact.get("last_change_id") == entry["_id"]:
        return True
    versions = _by_this(database, entry, "fact")
    return any(each["action"] != "delete" or fact is None for each in versions)


def _fact_removed(database: Any, entry: Document) -> bool:
    tombstones = [e for e in _by_this(database, entry, "fact") if e["action"] == "delete"]
    fact = _find(database, "memory2_facts", entry)
    if not tombstones:
        return False
    if fact is None or (fact.get("life") or 0) > tombstones[0]["life"]:
        return True
    database["memory2_history"].delete_one({"_id": tombstones[0]["_id"]})  # never applied
    return False


def _privacy_set(database: Any, entry: Document) -> bool:
    collection = "memory2_facts" if entry["target_type"] == "fact" else "memory2_reflections"
    found = _find(database, collection, entry)
    wanted = bool((entry.get("after") or {}).get("private"))
    return found is not None and (found.get("private") is True) is wanted


def _reflection_added(database: Any, entry: Document) -> bool:
    found = _find(database, "memory2_reflections", entry)
    if found is None:
        version = entry["after"]["version"]
        removals = _others(database, entry, "remove_reflection")
        return any((each["before"] or {}).get("version", 1) >= version for each in removals)
    if not _remembers(found, entry):
        return False
    if found.get("absorbed") is not True:
        _wait(database, entry, found["_id"])
    return True


def _wait(database: Any, entry: Document, reflection_id: Any) -> None:
    """Add an inserted reflection to its buffer, unless already absorbed."""
    texts, key = database["memory2_consolidated"], _text_key(entry)
    now = datetime.now(UTC)
    made = {"consolidated_content": "", "word_limit": 0, "createdAt": now, "unabsorbed_ids": []}
    if texts.find_one(key) is None:
        texts.insert_one({**key, **made, "updatedAt": now})
    texts.update_one({**key, "unabsorbed_ids": None}, {"$set": {"unabsorbed_ids": []}})
    texts.update_one(
        {**key, "absorbed_ids": {"$ne": reflection_id}},
        {"$addToSet": {"unabsorbed_ids": reflection_id}},
    )


def _reflection_revised(database: Any, entry: Document) -> bool:
    return _remembers(_find(database, "memory2_reflections", entry), entry)


def _reflection_removed(database: Any, entry: Document) -> bool:
    version = entry["before"].get("version")
    removals = _others(database, entry, "remove_reflection")
    by_other = any((each["before"] or {}).get("version") == version for each in removals)
    if _find(database, "memory2_reflections", entry) is not None:
        restored = _others(database, entry, "restore_reflection")
        back = any((each["after"] or {}).get("version") == version + 1 for each in restored)
        return back and not by_other
    if by_other:
        return False
    both = [entry["target_id"], str(entry["target_id"])]
    database["memory2_consolidated"].update_one(
        {**_text_key(entry), "unabsorbed_ids": {"$type": "array"}},
        {"$pull": {"unabsorbed_ids": {"$in": both}}},
    )
    return True


def _others(database: Any, entry: Document, action: str) -> list[Document]:
    key = {"target_id": entry["target_id"], "action": action, "_id": {"$ne": entry["_id"]}}
    return list(database["memory2_audit"].find(key))


def _text_written(database: Any, entry: Document) -> bool:
    text = _find(database, "memory2_consolidated", entry)
    made = text is not None and text.get("last_change_id") == entry["_id"]
    return made or bool(_by_this(database, entry, "consolidation"))


def _buffer_repaired(database: Any, entry: Document) -> bool:
    text = _find(database, "memory2_consolidated", entry)
    stored = [] if text is None else list(map(str, text.get("unabsorbed_ids") or ()))
    return stored == list(entry["after"]["unabsorbed_ids"])


def _policy_changed(database: Any, entry: Document) -> bool:
    key = {"_id": ObjectId(_derived("policy", entry["scope_key"]))}
    return _remembers(database["memory2_policies"].find_one(key), entry)


def _toggled(database: Any, entry: Document) -> bool:
    agent = _account(database, entry)
    names = ("user_memory_enabled", "agent_memory_enabled")
    return agent is not None and all(
        (agent.get(name) == 1) is (entry["after"].get(name) is True) for name in names
    )


def _account_added(database: Any, entry: Document) -> bool:
    return _account(database, entry) is not None


def _account_removed(database: Any, entry: Document) -> bool:
    return _account(database, entry) is None


def _account(database: Any, entry: Document) -> Document | None:
    """Return the agent or account from the collections of users."""
    key = {"_id": entry["target_id"], "type": entry["target_type"], "deleted": {"$ne": True}}
    for name in database.list_collection_names():
        found: Document | None = database[name].find_one(key)
        if found is not None:
            return found
    return None


_WAS_MADE: dict[str, Callable[[Any, Document], bool]] = {
    "add_fact": _fact_added,
    "revise_fact": _fact_revised,
    "remove_fact": _fact_removed,
    "set_privacy": _privacy_set,
    "add_reflection": _reflection_added,
    "restore_reflection": _reflection_added,
    "revise_reflection": _reflection_revised,
    "remove_reflection": _reflection_removed,
    "write_consolidation": _text_written,
    "revert_consolidation": _text_written,
    "repair_buffer": _buffer_repaired,
    "write_policy": _policy_changed,
    "remove_policy": _policy_changed,
    "set_agent_toggles": _toggled,
    "add_agent": _account_added,
    "add_user": _account_added,
    "remove_agent": _account_removed,
    "remove_user": _account_removed,
}


# -- scopes --------------------------------------------------------------------------------------


def _derived(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()[:24]


def _owner_fields(entry: Document) -> Document:
    kind, owner = entry["scope"], entry["owner"]
    stored = ObjectId(owner) if kind in ("user", "session") and ObjectId.is_valid(owner) else owner
    fields: Document = {"agent_id": entry["agent_id"], "scope": kind}
    fields.update(dict.fromkeys(_OWNER_FIELDS))
    field = {"user": "user_id", "group": "group_id", "shard": "shard", "session": "session_id"}
    if kind in field:
        fields[field[kind]] = stored
    return fields


def _text_key(entry: Document) -> Document:
    """Return the key of a scope's consolidated document."""
    key = {**_owner_fields(entry)}
    key.setdefault("session_id", None)
    if entry["scope"] in ("group", "shard"):
        key["session_id"] = ObjectId(_derived("consolidated", entry["scope_key"]))
    return key


def _touch(database: Any, entry: Document) -> None:
    """Increment the revision of the scope, which invalidates cached contexts."""
    if entry.get("scope_key"):
        key = {"_id": ObjectId(_derived("policy", entry["scope_key"]))}
        made = {**_owner_fields(entry), "createdAt": datetime.now(UTC)}
        database["memory2_policies"].update_one(
            key, {"$inc": {"revision": 1}, "$setOnInsert": made}, upsert=True
        )
