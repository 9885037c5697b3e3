"""What the migration does not do yet, by case. Who makes a case right removes its line.

A key is the name of a case, or of a store or a way and a case; a line too many fails the test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def params(
    names: Iterable[str], not_yet: Mapping[str, str], store: str = "", *marks: Any
) -> list[Any]:
    """Return parameters of these cases, those that cannot pass yet marked so."""
    made = []
    for name in names:
        keys = (name, f"{store} {name}", f"{store.rpartition(' ')[2]} {name}")
        reason = next((not_yet[key] for key in keys if key in not_yet), "")
        own = (
            [pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)] if reason else []
        )
        given = (store, name) if store else (name,)
        made.append(pytest.param(*given, marks=[*marks, *own], id=" ".join(given)))
    return made


CASES: dict[str, str] = {
    "sqlite pending_directives_of_one_moment_with_ids_out_of_order": (
        "SQLite orders a buffer of one moment by id (store.memory.pending): v1's order of "
        "the list is lost"
    ),
    "related users": "no field for related users: models, both stores, memory_items",
}

DAMAGES: dict[str, str] = {
    "texts_swapped_between_users": (
        "verification._Found.has compares by endswith, and takes any text that is there "
        "for a later change"
    ),
    "text_of_another_user_in_place_of_ones_own": (
        "verification._Found.has compares by endswith, and takes any text that is there "
        "for a later change"
    ),
    "text_truncated": (
        "verification._Found.has compares by endswith, and takes any text that is there "
        "for a later change"
    ),
    "text_without_its_beginning": (
        "verification._Found.has compares by endswith, and takes any text that is there "
        "for a later change"
    ),
    "text_with_something_before_it": (
        "verification._Found.has compares by endswith, and takes any text that is there "
        "for a later change"
    ),
    "text_with_something_behind_it": (
        "verification._Found.has compares by endswith, and takes any text that is there "
        "for a later change"
    ),
    "text_with_one_letter_changed": (
        "verification._Found.has compares by endswith, and takes any text that is there "
        "for a later change"
    ),
    "section_of_a_shard_dropped": (
        "verification._Found.has compares by endswith, and takes any text that is there "
        "for a later change"
    ),
    "text_version_lowered": (
        "verification._Found.has compares neither version nor times nor history of a text"
    ),
    "text_version_raised": (
        "verification._Found.has compares neither version nor times nor history of a text"
    ),
    "text_time_shifted": (
        "verification._Found.has compares neither version nor times nor history of a text"
    ),
    "earlier_text_lost": (
        "verification._Found.has compares neither version nor times nor history of a text"
    ),
    "text_copied_to_another_user": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "private_text_copied_to_the_agent": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "fact_of_a_paused_shard_copied_to_the_agent": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "fact_copied_to_a_user": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "fact_twice": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "fact_that_v1_never_had": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "private_reflection_copied_to_the_agent": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "reflection_twice": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "reflection_that_v1_never_had": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "episode_copied_to_the_agent": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "policy_copied_to_another_shard": (
        "verification looks at what the plan names; nothing looks for what should not be there"
    ),
    "fact_emptied": (
        "facts are looked up by their stored hash; the words are believed to be 'changed "
        "since' without an entry"
    ),
    "all_facts_emptied": (
        "facts are looked up by their stored hash; the words are believed to be 'changed "
        "since' without an entry"
    ),
    "fact_truncated": (
        "facts are looked up by their stored hash; the words are believed to be 'changed "
        "since' without an entry"
    ),
    "fact_changed_with_its_old_hash": (
        "facts are looked up by their stored hash; the words are believed to be 'changed "
        "since' without an entry"
    ),
    "fact_changed_with_a_new_hash": (
        "facts are looked up by their stored hash; the words are believed to be 'changed "
        "since' without an entry"
    ),
    "fact_hash_wrong": (
        "facts are looked up by their stored hash; the words are believed to be 'changed "
        "since' without an entry"
    ),
    "fact_time_shifted": "verification._same compares home and content alone",
    "fact_correction_time_dropped": "verification._same compares home and content alone",
    "fact_correction_time_invented": "verification._same compares home and content alone",
    "fact_session_dropped": "verification._same compares home and content alone",
    "fact_session_of_another": "verification._same compares home and content alone",
    "fact_provenance_wiped": "verification._same compares home and content alone",
    "all_provenance_wiped": "verification._same compares home and content alone",
    "one_source_of_a_merged_fact_dropped": "verification._same compares home and content alone",
    "fact_version_raised": "verification._same compares home and content alone",
    "fact_made_private": "verification._same compares home and content alone",
    "fact_with_an_earlier_text_that_it_never_had": (
        "verification._same compares home and content alone"
    ),
    "pending_marked_absorbed": "verification._same compares home and content alone",
    "absorbed_marked_pending": "verification._same compares home and content alone",
    "absorption_time_shifted": "verification._same compares home and content alone",
    "reflection_time_shifted": "verification._same compares home and content alone",
    "reflection_session_dropped": "verification._same compares home and content alone",
    "reflection_provenance_wiped": "verification._same compares home and content alone",
    "reflection_made_private": "verification._same compares home and content alone",
    "reflection_version_raised": "verification._same compares home and content alone",
    "reflections_swapped_between_users": (
        "verification.was_changed: a reflection in other words is believed to be 'changed "
        "since' without an entry"
    ),
    "reflection_emptied": (
        "verification.was_changed: a reflection in other words is believed to be 'changed "
        "since' without an entry"
    ),
    "reflection_truncated": (
        "verification.was_changed: a reflection in other words is believed to be 'changed "
        "since' without an entry"
    ),
    "order_of_the_buffer_changed": "verification does not look at buffers",
    "reflection_dropped_from_the_buffer": "verification does not look at buffers",
    "reflection_twice_in_the_buffer": "verification does not look at buffers",
    "fact_related_user_dropped": "no field for related users: models, both stores, memory_items",
    "reflection_related_user_dropped": (
        "no field for related users: models, both stores, memory_items"
    ),
    "episode_without_its_session": "verify ends with exit 2 at a document that nobody can read",
    "paused_shard_resumed": "verification: a policy that is there is taken as it is",
    "instructions_changed": "verification: a policy that is there is taken as it is",
    "limit_of_facts_changed": "verification: a policy that is there is taken as it is",
    "consolidation_threshold_changed": "verification: a policy that is there is taken as it is",
    "shard_made_private": "verification: a policy that is there is taken as it is",
    "agent_memory_switched_off": (
        "verification.was_changed: any switch is believed ('the host switches them too')"
    ),
    "agent_memory_switched_on": (
        "verification.was_changed: any switch is believed ('the host switches them too')"
    ),
    "user_memory_switched_off": (
        "verification.was_changed: any switch is believed ('the host switches them too')"
    ),
    "user_memory_switched_on": (
        "verification.was_changed: any switch is believed ('the host switches them too')"
    ),
    "persona_lost": "source._agent brings no persona along",
    "link_between_accounts_lost": (
        "source._user brings no eden_user_id, and only accounts with a text of their own"
    ),
    "entry_of_the_log_removed": (
        "verification does not look at the log where the target is as it was"
    ),
    "entry_of_the_log_says_something_else": (
        "verification does not look at the log where the target is as it was"
    ),
    "entry_of_the_log_names_another": (
        "verification does not look at the log where the target is as it was"
    ),
    "fact_changed_after_an_edit_of_another": (
        "verification.was_changed: any entry since excuses any difference"
    ),
    "fact_changed_after_its_own_edit": (
        "verification.was_changed: any entry since excuses any difference"
    ),
    "fact_provenance_wiped_after_its_edit": (
        "verification.was_changed: any entry since excuses any difference"
    ),
    "deleted_fact_put_back": "verification.was_changed: any entry since excuses any difference",
    "text_changed_after_its_edit": (
        "verification.was_changed: any entry since excuses any difference"
    ),
    "shard_resumed_after_a_change_of_its_limit": (
        "verification.was_changed: any entry since excuses any difference"
    ),
}

CHANGES: dict[str, str] = {
    "fact_made_private_by_its_owner": (
        "verification: what is not compared is not told as changed since"
    ),
    "policy_changed": "verification: what is not compared is not told as changed since",
    "shard_resumed": "verification: what is not compared is not told as changed since",
}

FILES: dict[str, str] = {}

ACCEPTED: dict[str, str] = {}

CONFLICTS: dict[str, str] = {}

AGAIN: dict[str, str] = {
    "a_new_shard_joins_the_text_of_the_agent": (
        "an untouched policy of the agent does not follow the instructions of its shards"
    ),
    "what is kept is listed": (
        "settings that are the same are listed as 'v2 has settings of its own, which were "
        "kept' when their shard has changed"
    ),
}

STATUS: dict[str, str] = {
    "undone": "RunState has no word for it: undo --run leaves 'rolled_back'",
    "superseded": "RunState has no word for it",
    "superseded_run_is_told_from_damage": "RunState has no word for it",
}
