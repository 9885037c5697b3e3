"""v1 goes on after it was migrated, and is migrated again: what happens in v1, and what happens
here in between.

A story makes its documents with a case, then returns what v1 does next; `here` is what is done in
v2 before the second run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.v1world.later import edit, edit_text, set_policy
from tests.v1world.live import write_text
from tests.v1world.memory import Memory, Scope
from tests.v1world.world import CASES, Case, Document

#: What v1 does to its documents after the first run.
GoesOn: dict[str, Callable[[Case], None]] = {}
#: What is done in v2 between the runs.
Here: dict[str, Callable[[Any, Case, Memory], None]] = {}
#: Scopes in which v2 keeps what it has, whatever v1 says.
KEPT = set[str]()


def story(make: Callable[[Case], None], *, kept: bool = False) -> Callable[[Any], Any]:
    """Register what v1 does next; the world begins with ``make``."""

    def note(goes_on: Callable[[Case], None]) -> Callable[[Case], None]:
        name = goes_on.__name__
        CASES[name] = make
        GoesOn[name] = goes_on
        if kept:
            KEPT.add(name)
        return goes_on

    return note


def here(do: Callable[[Any, Case, Memory], None]) -> Callable[[Any, Case, Memory], None]:
    """Register what is done in v2 before v1 goes on, under the name of its story."""
    Here[do.__name__.removeprefix("before_")] = do
    return do


STORIES = GoesOn.keys()

# -- how worlds begin ----------------------------------------------------------------------------


def _user(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(lena, f"VERSION: 3\n{c.words()}", pending=c.directives(lena, 3))


def _shards(c: Case) -> None:
    for name in ("Walk", "Workshop"):
        shard = c.shard_id(name)
        c.shard(
            name,
            f"VERSION: 2\n{c.words()}",
            facts=[c.memory("fact", shard=shard) for _ in range(2)],
            pending=[c.memory("suggestion", shard=shard) for _ in range(2)],
        )


def _paused(c: Case) -> None:
    shard = c.shard_id("Fair")
    c.shard("Fair", facts=[c.memory("fact", shard=shard)], is_active=False)


def _text_of(c: Case) -> Document:
    return c.database["memory_user"][-1]


def _shard_of(c: Case, place: int = 0) -> Document:
    return c.database["memory_agent"][place]


def _memory_of(c: Case, kind: str) -> Document:
    return next(d for d in c.database["memory_sessions"] if d["memory_type"] == kind)


def _consolidate(c: Case, document: Document, version: int) -> None:
    """Let v1 write a new text that has absorbed what waited."""
    document["content"] = f"VERSION: {version}\n{c.words(15)}"
    document["unabsorbed_memory_ids"] = []
    document["last_updated_at"] = document["updatedAt"] = c.now(hours=400)


def _scope(memory: Memory, c: Case, kind: str) -> Scope:
    found = {each.scope for each in memory.texts if each.scope.agent == str(c.agent)}
    return next(each for each in sorted(found) if each.kind == kind)


# -- what is untouched follows v1 ----------------------------------------------------------------


@story(_user)
def nothing_happened(c: Case) -> None:
    pass


@story(_user)
def untouched_text_follows_v1(c: Case) -> None:
    text = _text_of(c)
    text["content"] = f"VERSION: 4\n{c.words(15)}"
    text["last_updated_at"] = text["updatedAt"] = c.now(hours=400)


@story(_user)
def untouched_text_without_a_version_follows_v1(c: Case) -> None:
    text = _text_of(c)
    text["content"] = c.words(15)
    text["last_updated_at"] = text["updatedAt"] = c.now(hours=400)


@story(_shards)
def untouched_text_of_the_agent_follows_v1(c: Case) -> None:
    _shard_of(c)["content"] = f"VERSION: 3\n{c.words(15)}"
    _shard_of(c)["last_updated_at"] = c.now(hours=400)


@story(_shards)
def a_new_shard_joins_the_text_of_the_agent(c: Case) -> None:
    c.shard("Fair", facts=[c.memory("fact")])


@story(_user)
def directives_were_absorbed_meanwhile(c: Case) -> None:
    _consolidate(c, _text_of(c), 4)


@story(_user)
def some_directives_were_absorbed_meanwhile(c: Case) -> None:
    text = _text_of(c)
    last = text["unabsorbed_memory_ids"][-1]
    _consolidate(c, text, 4)
    lena = text["user_id"]
    text["unabsorbed_memory_ids"] = [last, c.memory("directive", users=[lena])["_id"]]


@story(_shards)
def suggestions_were_absorbed_meanwhile(c: Case) -> None:
    _consolidate(c, _shard_of(c), 3)


@story(_user)
def directives_were_dropped_and_the_text_stayed(c: Case) -> None:
    _text_of(c)["unabsorbed_memory_ids"] = []


@story(_user)
def some_directives_were_dropped_and_the_text_stayed(c: Case) -> None:
    text = _text_of(c)
    more = c.memory("directive", users=[text["user_id"]])["_id"]
    text["unabsorbed_memory_ids"] = [*text["unabsorbed_memory_ids"][1:], more]


@story(_shards)
def suggestions_were_dropped_and_the_text_stayed(c: Case) -> None:
    for shard in c.database["memory_agent"]:
        shard["unabsorbed_memory_ids"] = []


#: What v1 took off its lists makes a version with the same text.
NEW_VERSIONS = {name for name in STORIES if name.endswith("_dropped_and_the_text_stayed")}


@story(_user)
def new_directives_wait(c: Case) -> None:
    text = _text_of(c)
    more = c.directives(text["user_id"], 2)
    text["unabsorbed_memory_ids"] += [each["_id"] for each in more]


@story(_shards)
def new_facts_came(c: Case) -> None:
    _shard_of(c)["facts"] += [c.memory("fact")["_id"] for _ in range(2)]


@story(_user)
def a_new_user_came(c: Case) -> None:
    tomas = c.person("tomas")
    c.user_text(tomas, pending=c.directives(tomas, 1))


# -- what was changed here stays -----------------------------------------------------------------


def _moment(c: Case) -> None:
    lena = c.person("lena")
    first, second = c.directives(lena, 2)
    second["createdAt"] = second["updatedAt"] = first["createdAt"]
    c.user_text(lena, pending=[first, second])


@story(_moment, kept=True)
def order_of_one_moment_that_changes_in_v1_is_kept(c: Case) -> None:
    _text_of(c)["unabsorbed_memory_ids"].reverse()


@story(_user, kept=True)
def text_edited_here_is_kept(c: Case) -> None:
    untouched_text_follows_v1(c)


@here
def before_text_edited_here_is_kept(place: Any, c: Case, memory: Memory) -> None:
    edit_text(place, _scope(memory, c, "user"), "She likes whales.")


@story(_user, kept=True)
def text_consolidated_here_is_kept(c: Case) -> None:
    untouched_text_follows_v1(c)


@here
def before_text_consolidated_here_is_kept(place: Any, c: Case, memory: Memory) -> None:
    scope = _scope(memory, c, "user")
    waiting = [each for each in memory.reflections if each.scope == scope]
    absorbed = tuple(each.id for each in sorted(waiting, key=lambda each: each.formed_at))
    place.command("status")
    write_text(place, scope, "Be brief.", absorbed=absorbed)


@story(_shards, kept=True)
def fact_edited_here_is_kept(c: Case) -> None:
    new_facts_came(c)


@here
def before_fact_edited_here_is_kept(place: Any, c: Case, memory: Memory) -> None:
    fact = next(each for each in memory.facts if each.scope.agent == str(c.agent))
    edit(place, fact.id, "It starts at 18:00.")


@story(_user, kept=True)
def directives_of_a_text_edited_here_wait_on(c: Case) -> None:
    """Nobody knows whether they are in the text that is here now."""
    directives_were_dropped_and_the_text_stayed(c)


@here
def before_directives_of_a_text_edited_here_wait_on(place: Any, c: Case, memory: Memory) -> None:
    edit_text(place, _scope(memory, c, "user"), "She likes whales.")


@story(_shards)
def fact_reworded_in_v1_follows_it(c: Case) -> None:
    fact = _memory_of(c, "fact")
    fact["content"] = f"{fact['content']} It was moved."


@story(_user)
def directive_reworded_in_v1_follows_it(c: Case) -> None:
    directive = _memory_of(c, "directive")
    directive["content"] = f"{directive['content']} From now on."


@story(_shards, kept=True)
def fact_deleted_here_stays_away(c: Case) -> None:
    new_facts_came(c)


@here
def before_fact_deleted_here_stays_away(place: Any, c: Case, memory: Memory) -> None:
    fact = next(each for each in memory.facts if each.scope.agent == str(c.agent))
    place.command("delete", fact.id, "--yes")


@story(_user, kept=True)
def user_forgotten_here_stays_away(c: Case) -> None:
    untouched_text_follows_v1(c)
    new_directives_wait(c)


@here
def before_user_forgotten_here_stays_away(place: Any, c: Case, memory: Memory) -> None:
    place.command("forget", "--user", _scope(memory, c, "user").owner, "--yes")


@story(_paused, kept=True)
def policy_changed_here_is_kept(c: Case) -> None:
    _shard_of(c)["extraction_prompt"] = "Remember other things."


@here
def before_policy_changed_here_is_kept(place: Any, c: Case, memory: Memory) -> None:
    shard = next(p.scope for p in memory.policies if p.scope.agent == str(c.agent))
    set_policy(place, shard, "--memory-instructions", "Whales only.")
