"""What edenmem itself does to migrated memory later, and logs: no damage."""

from __future__ import annotations

from typing import Any

from tests.v1world.live import write_text
from tests.v1world.memory import Scope
from tests.v1world.whole import Do, Whole


def edit(place: Any, fact_id: str, content: str) -> None:
    """Change a fact as a person does."""
    place.command("fact", "edit", fact_id, "--content", content, "--yes")


def edit_text(place: Any, scope: Scope, content: str) -> None:
    """Change a user's text as a person does."""
    of = ("--agent", scope.agent, "--user", scope.owner)
    place.command("consolidation", "edit", *of, "--content", content, "--yes")


def set_policy(place: Any, scope: Scope, *setting: str) -> None:
    """Change a setting of a shard as a person does."""
    place.command("scope", "policy", "--agent", scope.agent, "--shard", scope.owner, *setting)


#: Later changes that a check lets pass as "changed since".
CHANGES: dict[str, Do] = {}


def change(do: Do) -> Do:
    """Note a change that edenmem itself makes, and logs."""
    CHANGES[do.__name__] = do
    return do


@change
def fact_edited(place: Any, whole: Whole) -> None:
    edit(place, whole.fact("several_active_shards").id, "It starts at 18:00.")


@change
def fact_edited_twice(place: Any, whole: Whole) -> None:
    for content in ("It starts at 18:00.", "It starts at 19:00."):
        edit(place, whole.fact("several_active_shards").id, content)


@change
def fact_deleted(place: Any, whole: Whole) -> None:
    place.command("delete", whole.fact("several_active_shards").id, "--yes")


@change
def fact_made_private_by_its_owner(place: Any, whole: Whole) -> None:
    fact = whole.fact("several_active_shards")
    place.command("fact", "edit", fact.id, "--private", "--yes")


@change
def reflection_edited(place: Any, whole: Whole) -> None:
    item = whole.reflection("pending_directives_in_order")
    place.command("edit", item.id, "--content", "Be brief.", "--yes")


@change
def reflection_deleted(place: Any, whole: Whole) -> None:
    item = whole.reflection("pending_directives_in_order", place=2)
    place.command("delete", item.id, "--yes")


@change
def text_edited(place: Any, whole: Whole) -> None:
    edit_text(place, whole.text("persona", "user").scope, "She likes whales.")


@change
def policy_changed(place: Any, whole: Whole) -> None:
    scope = whole.policy("limits_of_shards", "shard").scope
    set_policy(place, scope, "--memory-instructions", "Whales only.")


@change
def shard_resumed(place: Any, whole: Whole) -> None:
    scope = whole.policy("active_and_paused_shards", "shard").scope
    place.command("scope", "resume", "--agent", scope.agent, "--shard", scope.owner)


@change
def agent_memory_disabled(place: Any, whole: Whole) -> None:
    agent = whole.agent("several_active_shards")
    place.command("agent", "set", agent, "--no-agent-memory")


@change
def user_forgotten(place: Any, whole: Whole) -> None:
    user = whole.reflection("pending_directives_in_order").scope.owner
    place.command("forget", "--user", user, "--yes")


@change
def agent_forgotten(place: Any, whole: Whole) -> None:
    place.command("forget", "--agent", whole.agent("several_active_shards"), "--yes")


@change
def reflections_consolidated(place: Any, whole: Whole) -> None:
    consolidate(place, whole.reflection("pending_directives_in_order").scope)


@change
def consolidated_and_edited(place: Any, whole: Whole) -> None:
    scope = whole.reflection("pending_directives_in_order").scope
    consolidate(place, scope)
    edit_text(place, scope, "She wants it brief.")


def consolidate(place: Any, scope: Scope) -> None:
    """Write a new text that has absorbed what waits, as consolidation does."""
    place.command("status")  # MongoDB's place then knows that it is written to
    waiting = [each for each in place.read().reflections if each.scope == scope]
    absorbed = tuple(each.id for each in waiting if not each.absorbed)
    write_text(place, scope, "Be brief, and never round amounts.", absorbed=absorbed)


@change
def facts_added_later(place: Any, whole: Whole) -> None:
    """What is learned later is in the log, and none of v1's."""
    agent = whole.agent("several_active_shards")
    place.command("fact", "add", "It starts at 18:00.", "--agent", agent)
