"""Every kind of damage that `doctor` detects, applied to a healthy memory (see `ward`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bson import ObjectId

from tests.support.builders import ago
from tests.support.ward import EMBEDDER, TODAY, MongoWard, SqliteWard, Ward

NOWHERE = "0" * 24

#: Check → the exact IDs to find.
Expected = dict[str, set[str]]


@dataclass(frozen=True)
class Damage:
    """A kind of damage and its stores.

    ``repaired``: `--fix` repairs the findings, except for ``left``, such as missing vectors."""

    name: str
    do: Callable[[Any], Expected]
    stores: tuple[str, ...]
    repaired: bool
    left: tuple[str, ...]


DAMAGES: list[Damage] = []
_Do = Callable[[Any], Expected]


def damage(
    *stores: str, repaired: bool = False, left: tuple[str, ...] = ()
) -> Callable[[_Do], _Do]:
    """Register a kind of damage, by default on both stores.

    Damage that only the engine checks is tested on the faster store.
    """

    def note(do: _Do) -> _Do:
        name = do.__name__.replace("_", " ")
        DAMAGES.append(Damage(name, do, stores or ("sqlite", "mongo"), repaired, left))
        return do

    return note


def cases() -> Iterator[tuple[str, Damage]]:
    """Return each damage on each store where it can occur."""
    for each in DAMAGES:
        for store in each.stores:
            yield store, each


# -- owners ------------------------------------------------------------------------------------


@damage()
def an_agent_is_missing(ward: Ward) -> Expected:
    ward.delete("agent", ward.ids.adam)
    return {"owners": {f"agent:{ward.ids.adam}"}}


@damage()
def a_person_is_missing(ward: Ward) -> Expected:
    ward.delete("user", ward.ids.bruno)
    return {"owners": {f"user:{ward.ids.eve}:{ward.ids.bruno}"}}


@damage()
def a_session_is_missing(ward: Ward) -> Expected:
    ward.delete("session", ward.ids.lost)
    return {"owners": {f"session:{ward.ids.eve}:{ward.ids.lost}"}}


@damage()
def a_group_is_named_by_no_session(ward: Ward) -> Expected:
    ward.set("session", ward.ids.choir, group_id="another")
    return {"owners": {f"group:{ward.ids.eve}:choir"}}


@damage()
def a_shard_has_no_policy(ward: Ward) -> Expected:
    ward.delete("policy", ward.ids.shard_policy)
    return {"owners": {f"shard:{ward.ids.eve}:route"}}


# -- sources and targets -----------------------------------------------------------------------


@damage()
def a_source_message_is_gone(ward: Ward) -> Expected:
    ward.set("fact", ward.ids.lives, source_message_ids=[NOWHERE])
    return {"sources": {ward.ids.lives}}


@damage("sqlite")
def a_source_session_is_missing(ward: Ward) -> Expected:
    ward.set("fact", ward.ids.works, session_id=NOWHERE)
    return {"sources": {ward.ids.works}}


@damage()
def a_reflection_was_absorbed_by_a_missing_text(ward: Ward) -> Expected:
    ward.set("reflection", ward.ids.first, consolidated_into=NOWHERE)
    return {"links": {ward.ids.first}}


@damage("sqlite")
def a_reflection_has_a_missing_parent(ward: Ward) -> Expected:
    ward.set("reflection", ward.ids.third, propagated_from=[NOWHERE])
    return {"links": {ward.ids.third}}


@damage()
def user_memory_of_a_group_chat(ward: Ward) -> Expected:
    """Known failure 8: the facts of a group chat go to the wrong person."""
    both = list(ward.ids.both_said)
    ward.set("fact", ward.ids.works, session_id=ward.ids.choir, source_message_ids=both)
    ward.set("reflection", ward.ids.third, session_id=ward.ids.choir, source_message_ids=both)
    return {"group-sessions": {ward.ids.works, ward.ids.third}}


@damage()
def an_account_was_linked_to_another(ward: Ward) -> Expected:
    ward.set("user", ward.ids.anna, eden_user_id=ward.ids.bruno)
    return {"accounts": {ward.ids.anna}}


@damage("sqlite")
def a_source_account_is_no_longer_linked(ward: Ward) -> Expected:
    by_bruno = [ward.ids.both_said[1]]
    ward.set("fact", ward.ids.works, session_id=ward.ids.choir, source_message_ids=by_bruno)
    return {"group-sessions": {ward.ids.works}}


# -- content -----------------------------------------------------------------------------------


@damage(repaired=True)
def a_text_was_changed_past_edenmem(ward: Ward) -> Expected:
    """Known failure 19: the text is another, and the vector is that of the old one."""
    ward.set("fact", ward.ids.lives, content="Anna lives in Porto now, with her brother.")
    return {"hashes": {ward.ids.lives}}


@damage(repaired=True)
def a_hash_is_wrong(ward: Ward) -> Expected:
    ward.set("fact", ward.ids.of_adam, hash="0" * 32)
    return {"hashes": {ward.ids.of_adam}}


@damage(repaired=True)
def a_fact_duplicates_another(ward: Ward) -> Expected:
    ward.set("fact", ward.ids.works, content="Anna lives in Lisbon.", formed_at=TODAY)
    return {"duplicates": {ward.ids.works}, "hashes": {ward.ids.works}}


@damage("mongo", repaired=True)
def a_fact_is_there_twice_since_its_key_was_dropped(ward: MongoWard) -> Expected:
    """Known failure 47: the unique index is dropped, and duplicates come in."""
    facts = ward.database["memory2_facts"]
    ward.drop_index("memory2_facts", "fact_dedup_idx")
    copy = facts.find_one({"_id": ObjectId(ward.ids.lives)})
    copy["_id"], copy["formed_at"] = ObjectId(), TODAY
    facts.insert_one(copy)
    return {"duplicates": {str(copy["_id"])}, "indexes": {"fact_dedup_idx"}}


@damage("sqlite")
def a_reflection_is_too_long(ward: Ward) -> Expected:
    ward.set("reflection", ward.ids.third, content="long " * 50)
    return {"limits": {ward.ids.third}}


@damage("sqlite")
def a_reflection_says_nothing(ward: Ward) -> Expected:
    ward.set("reflection", ward.ids.third, content=" \n")
    return {"blank": {ward.ids.third}}


@damage()
def a_fact_is_unconfirmed(ward: Ward) -> Expected:
    ward.set("fact", ward.ids.works, unconfirmed="has no quote")
    return {"unconfirmed": {ward.ids.works}}


@damage(repaired=True)
def a_fact_has_expired(ward: Ward) -> Expected:
    ward.set("fact", ward.ids.works, expires_at=TODAY)
    return {"expired": {ward.ids.works}}


@damage()
def a_text_is_blank(ward: Ward) -> Expected:
    """Known failure 11: a blank answer of the LLM overwrites the text."""
    if isinstance(ward, SqliteWard):
        ward.run("UPDATE consolidations SET content = ' ', words = 0 WHERE id = ?", ward.ids.text)
    else:
        ward.set("consolidation", ward.ids.text, consolidated_content="VERSION: 3\n ")
    return {"blank": {ward.ids.text}}


@damage("sqlite")
def a_text_is_too_long(ward: Ward) -> Expected:
    ward.set("policy", ward.ids.policy, word_limit=3)
    return {"limits": {ward.ids.text}}


@damage()
def a_time_in_the_future(ward: Ward) -> Expected:
    """Known failure 39: one host's local time is written as UTC."""
    ward.set("fact", ward.ids.works, updated_at=TODAY + timedelta(hours=2))
    ward.set("reflection", ward.ids.third, formed_at=TODAY + timedelta(days=900))
    return {"times": {ward.ids.works, ward.ids.third}}


# -- unreadable documents ----------------------------------------------------------------------


@damage("sqlite")
def lists_that_are_null(ward: SqliteWard) -> Expected:
    ward.set("fact", ward.ids.lives, source_message_ids="nonsense")
    ward.set("reflection", ward.ids.third, propagated_from="[1, 2]")
    ward.run("UPDATE audit SET after = '{' WHERE target_id = ?", ward.ids.of_adam)
    ward.run("UPDATE formations SET decisions = '{' WHERE id = ?", ward.ids.applied)
    (entry,) = _ids(ward, "SELECT id FROM audit WHERE after = '{'")
    return {"readable": {ward.ids.lives, ward.ids.third, entry, ward.ids.applied}}


@damage("sqlite")
def bytes_that_are_no_text(ward: SqliteWard) -> Expected:
    ward.run("UPDATE facts SET content = CAST(x'ff41' AS TEXT) WHERE id = ?", ward.ids.lives)
    return {"readable": {ward.ids.lives}}


@damage("sqlite")
def a_time_out_of_range(ward: SqliteWard) -> Expected:
    ward.set("fact", ward.ids.lives, formed_at=2**60)
    return {"readable": {ward.ids.lives}}


@damage("mongo", repaired=True)
def documents_of_unknown_shape(ward: MongoWard) -> Expected:
    """Known failure 4: a missing user id must be an error, never a wider filter."""
    ward.set("fact", ward.ids.lives, scope="galaxy")
    ward.set("fact", ward.ids.works, user_id=None)
    return {"readable": {ward.ids.lives, ward.ids.works}}


@damage("mongo")
def a_formation_of_unknown_shape(ward: MongoWard) -> Expected:
    ward.set("formation", ward.ids.applied, status="dreaming")
    return {"readable": {ward.ids.applied}}


@damage("mongo")
def documents_that_queries_miss(ward: MongoWard) -> Expected:
    facts = ward.database["memory2_facts"]
    facts.update_one({"_id": ObjectId(ward.ids.lives)}, {"$set": {"agent_id": ward.ids.eve}})
    ward.set("fact", ward.ids.of_adam, user_id=ward.ids.anna)
    ward.set("reflection", ward.ids.third, updated_at="yesterday", source_message_ids={"a": 1})
    return {"stored-form": {ward.ids.lives, ward.ids.of_adam, ward.ids.third}}


# -- buffers -----------------------------------------------------------------------------------


@damage("sqlite", repaired=True)
def what_went_into_the_text_is_marked_as_waiting_in_a_file(ward: SqliteWard) -> Expected:
    """Known failure 16: reflections stay "recent" for ever, or are absorbed twice."""
    ward.set("reflection", ward.ids.second, absorbed=0)
    return {"buffers": {ward.ids.second}, "counters": {_scope_of_anna(ward)}}


@damage("mongo", repaired=True)
def what_went_into_the_text_is_marked_as_waiting(ward: MongoWard) -> Expected:
    """Known failure 16: reflections stay "recent" for ever, or are absorbed twice."""
    ward.set("reflection", ward.ids.second, absorbed=False)
    return {"buffers": {ward.ids.second}}


@damage("mongo", repaired=True)
def a_pending_reflection_is_in_no_buffer(ward: MongoWard) -> Expected:
    """Known failure 17: a race leaves a reflection in no buffer."""
    _buffer(ward, ward.ids.fourth)
    return {"buffers": {ward.ids.third}}


@damage("mongo", repaired=True)
def a_buffer_is_lost_with_its_document(ward: MongoWard) -> Expected:
    of_lost = ward.ids.of_lost
    ward.delete("consolidation", ward.ids.text_of_lost)
    ward.set("reflection", of_lost, absorbed=False, consolidated_into=None)
    return {"buffers": {of_lost}}


@damage("mongo", repaired=True)
def a_buffer_has_an_absorbed_reflection(ward: MongoWard) -> Expected:
    _buffer(ward, ward.ids.first, ward.ids.third, ward.ids.fourth)
    return {"buffers": {ward.ids.first}}


@damage("mongo", repaired=True)
def a_buffer_has_ids_of_nothing_of_others_and_twice(ward: MongoWard) -> Expected:
    ids = ward.ids
    _buffer(ward, ids.third, NOWHERE, ids.fourth, ids.third, ids.of_lost)
    return {"buffers": {ids.text, ids.third}}


@damage("sqlite", repaired=True)
def counts_are_wrong(ward: SqliteWard) -> Expected:
    ward.run("UPDATE scopes SET facts = facts + 5, pending = 0 WHERE owner = ?", ward.ids.anna)
    ward.run("UPDATE consolidations SET words = 900 WHERE id = ?", ward.ids.text_of_lost)
    of_lost = f"session:{ward.ids.eve}:{ward.ids.lost}"
    return {"counters": {_scope_of_anna(ward), of_lost}}


# -- search ------------------------------------------------------------------------------------


@damage("sqlite")
def facts_have_no_vector_in_a_file(ward: SqliteWard) -> Expected:
    number = f"(SELECT fact_no FROM facts WHERE id = '{ward.ids.lives}')"
    ward.run(f"DELETE FROM vectors WHERE fact_no = {number}")
    ward.run(f"DELETE FROM vector_codes WHERE fact_no = {number}")
    ward.run("UPDATE facts SET model_id = NULL WHERE id = ?", ward.ids.lives)
    return {"vectors": {ward.ids.eve}}


@damage("mongo")
def facts_have_no_vector_or_another_models(ward: MongoWard) -> Expected:
    """Known failure 28: vectors of two models share a field."""
    facts = ward.database["memory2_facts"]
    gone = {"embedding": "", "embedding_model": ""}
    facts.update_one({"_id": ObjectId(ward.ids.lives)}, {"$unset": gone})
    ward.set("fact", ward.ids.works, embedding_model="an older model")
    ward.set("fact", ward.ids.of_adam, embedding=[0.5, 0.5])
    return {"vectors": {ward.ids.eve, ward.ids.adam}}


@damage("sqlite")
def vectors_are_of_another_model(ward: SqliteWard) -> Expected:
    ward.run("INSERT INTO embedding_models (name, dimensions) VALUES ('an older model', 8)")
    older = "(SELECT model_id FROM embedding_models WHERE name = 'an older model')"
    number = f"(SELECT fact_no FROM facts WHERE id = '{ward.ids.works}')"
    ward.run(f"UPDATE facts SET model_id = {older} WHERE fact_no = {number}")
    ward.run(f"UPDATE vector_codes SET model_id = {older} WHERE fact_no = {number}")
    return {"vectors": {ward.ids.eve}}


@damage("sqlite", repaired=True, left=("vectors",))
def vectors_are_zeros_or_lost(ward: SqliteWard) -> Expected:
    """Known failure 27: a failed embedding is stored as zeros, and counts as one."""
    numbers = "(SELECT fact_no FROM facts WHERE id = '{}')"
    for name, statement in (
        (ward.ids.lives, "UPDATE vectors SET vector = zeroblob(32)"),
        (ward.ids.works, "UPDATE vectors SET vector = zeroblob(5)"),
        (ward.ids.of_adam, "DELETE FROM vectors"),
    ):
        ward.run(f"{statement} WHERE fact_no = {numbers.format(name)}")
    return {"vector-damage": {ward.ids.lives, ward.ids.works, ward.ids.of_adam}}


@damage("mongo", repaired=True, left=("vectors",))
def vectors_are_zeros(ward: MongoWard) -> Expected:
    """Known failure 27: a failed embedding is stored as zeros, and counts as one."""
    ward.set("fact", ward.ids.lives, embedding=[0.0] * EMBEDDER.dimensions)
    return {"vector-damage": {ward.ids.lives}, "vectors": {ward.ids.eve}}


@damage("sqlite", repaired=True)
def search_indexes_lack_facts(ward: SqliteWard) -> Expected:
    ward.run("INSERT INTO facts_text (facts_text) VALUES ('delete-all')")
    ward.run("DELETE FROM vector_codes")
    return {"search-indexes": {"facts_text", "vector_codes"}}


@damage("sqlite", repaired=True)
def keys_and_triggers_were_dropped(ward: SqliteWard) -> Expected:
    """Known failure 47: the unique index is dropped without notice."""
    ward.run("DROP INDEX formations_unfinished")
    ward.run("DROP INDEX facts_recent")
    ward.run("DROP TRIGGER stirred_by_message")
    return {"indexes": {"formations_unfinished", "facts_recent"}, "file": {"stirred_by_message"}}


@damage("mongo", repaired=True)
def keys_were_dropped(ward: MongoWard) -> Expected:
    """Known failure 47: the unique index is dropped without notice."""
    ward.drop_index("memory2_formations", "edenmem_formation_unfinished")
    ward.drop_index("memory2_facts", "edenmem_fact_recent")
    return {"indexes": {"edenmem_formation_unfinished", "edenmem_fact_recent"}}


# -- work --------------------------------------------------------------------------------------


@damage(repaired=True)
def a_claim_outlived_its_worker(ward: Ward) -> Expected:
    ward.set("formation", ward.ids.claimed, lease_until=ago(minutes=1))
    return {"claims": {ward.ids.claimed}}


@damage(repaired=True)
def what_was_recorded_was_not_applied(ward: Ward) -> Expected:
    ward.set("formation", ward.ids.recorded, lease_until=ago(minutes=1))
    return {"recorded": {ward.ids.recorded}}


#: Usage stored by older versions for invalid counts of an endpoint.
NO_USAGE: list[Any] = [
    {"task": "facts", "model": "m", "input_tokens": True, "output_tokens": -5, "cost": None},
    {"task": "facts", "model": "m", "input_tokens": 2**62, "output_tokens": 2**62, "cost": 1e300},
    {"task": "facts", "model": "m", "input_tokens": 1.5, "output_tokens": 3, "cost": "free"},
    {"task": 7, "model": None, "input_tokens": "many", "output_tokens": [], "cost": True},
    {"task": "dedup", "model": "m", "input_tokens": 100, "output_tokens": 20, "cost": 0.5},
    "nonsense",
]


@damage()
def a_formation_failed(ward: Ward) -> Expected:
    ward.set("formation", ward.ids.claimed, status="failed", error="no answer")
    return {"failed": {ward.ids.claimed}}


@damage("mongo", repaired=True)
def the_platform_wrote_an_older_progress_back(ward: MongoWard) -> Expected:
    """Known failure 58: the platform forms again what was forgotten."""
    (formation,) = ward.database["memory2_formations"].find({"_id": ObjectId(ward.ids.applied)})
    before = {"$unset": {"memory_context.last_memory_message_id": ""}}
    ward.database["sessions"].update_one({"_id": formation["session_id"]}, before)
    return {"progress": {str(formation["session_id"])}}


@damage("mongo")
def the_platform_passed_a_message_unread(ward: MongoWard) -> Expected:
    """FAILURES 91: a late message, before the platform's cursor."""
    (formation,) = ward.database["memory2_formations"].find({"_id": ObjectId(ward.ids.applied)})
    (first,) = ward.database["messages"].find({"_id": formation["message_ids"][0]})
    ward.database["messages"].insert_one({**first, "_id": ObjectId()})
    return {"unread": {str(formation["session_id"])}}


@damage("mongo")
def the_platform_read_what_edenmem_formed(ward: MongoWard) -> Expected:
    """FAILURES 90: both claimed the same messages."""
    (formation,) = ward.database["memory2_formations"].find({"_id": ObjectId(ward.ids.applied)})
    of_range = {"source_message_ids": {"$in": formation["message_ids"]}}
    theirs = {"$unset": {"private": "", "formation_id": ""}}
    ward.database["memory2_facts"].update_one(of_range, theirs)
    return {"read-twice": {str(formation["session_id"])}}


@damage()
def drafts_of_a_text_were_refused(ward: SqliteWard | MongoWard) -> Expected:
    """Known failure 104: a scope was stuck, and nothing said so."""
    failed = {"fingerprint": "f", "count": 3, "reviews": []}
    is_row = isinstance(ward, SqliteWard)
    ward.set("consolidation", ward.ids.text, failed_drafts=json.dumps(failed) if is_row else failed)
    return {"drafts": {ward.ids.text}}


# -- helpers -----------------------------------------------------------------------------------


def _buffer(ward: MongoWard, *ids: str) -> None:
    ward.set("consolidation", ward.ids.text, unabsorbed_ids=list(ids))


def _scope_of_anna(ward: Ward) -> str:
    return f"user:{ward.ids.eve}:{ward.ids.anna}"


def _ids(ward: SqliteWard, query: str) -> list[str]:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(ward.path)) as raw:
        return [row[0] for row in raw.execute(query)]
