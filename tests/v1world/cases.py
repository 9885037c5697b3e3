"""The named cases: v1's rules, its older forms, its conflicts, and odd values.

What each must become is in no case: `expected` computes it from the documents.
"""

from __future__ import annotations

from datetime import timedelta

from tests.v1world.world import CASES, Case, case

__all__ = ["CASES"]

HEADER = "-- User Memory for somebody --"

# -- v1's rules ----------------------------------------------------------------------------------


@case
def user_text_with_version(c: Case) -> None:
    c.user_text(c.person("lena"), f"VERSION: 7\n{c.words(20)}\n\n- {c.words()}\n- {c.words()}")


@case
def user_text_without_version(c: Case) -> None:
    c.user_text(c.person("lena"), c.words(20))


@case
def user_text_that_mentions_a_version_later(c: Case) -> None:
    c.user_text(c.person("lena"), f"{c.words()}\nVERSION: 9\n{c.words()}")


@case
def texts_of_two_users(c: Case) -> None:
    c.user_text(c.person("lena"), f"VERSION: 2\n{c.words()}")
    c.user_text(c.person("tomas"), f"VERSION: 3\n{c.words()}")


@case
def user_without_text(c: Case) -> None:
    c.user_text(c.person("lena"), "", fully_formed_memory=None)
    c.user_text(c.person("tomas"), None, fully_formed_memory=None)


@case
def pending_directives_in_order(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(lena, pending=c.directives(lena, 5))


@case
def pending_directives_of_one_moment(c: Case) -> None:
    lena, at = c.person("lena"), c.now()
    waiting = [
        c.memory("directive", users=[lena], createdAt=at, updatedAt=at, _id=c.id(f"m{n}", at))
        for n in range(6)
    ]
    c.user_text(lena, pending=sorted(waiting, key=lambda each: each["_id"]))


@case
def pending_directives_of_one_moment_with_ids_out_of_order(c: Case) -> None:
    """Two processes of v1 made them: the list has them in order, their ids have not."""
    lena, at = c.person("lena"), c.now()
    waiting = [
        c.memory("directive", users=[lena], createdAt=at, updatedAt=at, _id=c.id(f"m{n}", at))
        for n in range(4)
    ]
    c.user_text(lena, pending=sorted(waiting, key=lambda each: each["_id"], reverse=True))


@case
def pending_directive_that_was_corrected(c: Case) -> None:
    lena = c.person("lena")
    directive = c.memory("directive", users=[lena])
    directive["updatedAt"] = directive["createdAt"] + timedelta(days=2)
    c.user_text(lena, pending=[directive])


@case
def directive_of_two_users(c: Case) -> None:
    """v1 put a directive on the list of each person that spoke."""
    lena, tomas = c.person("lena"), c.person("tomas")
    both = c.memory("directive", users=[lena, tomas])
    c.user_text(lena, pending=[both])
    c.user_text(tomas, pending=[both])


@case
def directive_of_another_user(c: Case) -> None:
    lena, tomas = c.person("lena"), c.person("tomas")
    mine, other = c.memory("directive", users=[lena]), c.memory("directive", users=[tomas])
    c.user_text(lena, pending=[mine, other])
    c.user_text(tomas, pending=[other])


@case
def directive_in_the_list_of_a_shard(c: Case) -> None:
    """What is personal does not reach everybody."""
    lena = c.person("lena")
    personal = c.memory("directive", users=[lena])
    c.user_text(lena, pending=[personal])
    c.shard("Walk", pending=[personal], facts=[personal])


@case
def directive_listed_twice(c: Case) -> None:
    lena = c.person("lena")
    first, second = c.directives(lena, 2)
    c.user_text(lena, pending=[first, second, first])


@case
def directive_that_is_gone(c: Case) -> None:
    lena = c.person("lena")
    first, second = c.directives(lena, 2)
    c.user_text(lena, pending=[first, c.id("nowhere"), second])


@case
def directive_of_another_agent(c: Case) -> None:
    lena, other = c.person("lena"), c.id("other agent")
    foreign = c.memory("directive", users=[lena], agent_id=other)
    c.user_text(lena, pending=[foreign, *c.directives(lena, 1)])


@case
def empty_directive(c: Case) -> None:
    lena = c.person("lena")
    empty = c.memory("directive", "  \n ", users=[lena])
    c.user_text(lena, pending=[*c.directives(lena, 1), empty])


@case
def active_shard(c: Case) -> None:
    shard = c.shard_id("Walk")
    c.shard(
        "Walk",
        f"VERSION: 4\n{c.words(30)}",
        facts=[c.memory("fact", shard=shard) for _ in range(3)],
        pending=[c.memory("suggestion", shard=shard) for _ in range(3)],
    )


@case
def several_active_shards(c: Case) -> None:
    for name, version in (("Walk", 4), ("Workshop", 9), ("Fair", 2)):
        shard = c.shard_id(name)
        c.shard(
            name,
            f"VERSION: {version}\n{c.words(15)}",
            facts=[c.memory("fact", shard=shard)],
            pending=[c.memory("suggestion", shard=shard)],
        )


@case
def active_shard_without_text(c: Case) -> None:
    c.shard("Walk", "", fully_formed_memory=None, facts=[c.memory("fact")])
    c.shard("Fair", f"VERSION: 3\n{c.words()}")


@case
def active_shard_without_instructions(c: Case) -> None:
    c.shard("Walk", extraction_prompt="")
    c.shard("Fair", without=["extraction_prompt", "max_facts_per_shard"])


def _inactive(c: Case, *, without: bool = False, **fields: object) -> None:
    shard = c.shard_id("Fair")
    c.shard(
        "Fair",
        f"VERSION: 2\n{c.words()}",
        facts=[c.memory("fact", shard=shard)],
        pending=[c.memory("suggestion", shard=shard)],
        without=["is_active"] if without else [],
        **fields,
    )


@case
def shard_inactive_false(c: Case) -> None:
    _inactive(c, is_active=False)


@case
def shard_inactive_missing(c: Case) -> None:
    _inactive(c, without=True)


@case
def shard_inactive_null(c: Case) -> None:
    _inactive(c, is_active=None)


@case
def shard_inactive_one(c: Case) -> None:
    _inactive(c, is_active=1)


@case
def shard_inactive_text(c: Case) -> None:
    _inactive(c, is_active="true")


@case
def active_and_paused_shards(c: Case) -> None:
    c.shard("Walk", f"VERSION: 4\n{c.words()}", facts=[c.memory("fact")])
    c.shard("Fair", f"VERSION: 2\n{c.words()}", facts=[c.memory("fact")], is_active=False)


@case
def shards_of_one_name(c: Case) -> None:
    c.shard("Walk", facts=[c.memory("fact")])
    c.shard("Walk", facts=[c.memory("fact")], _id=c.id("another shard", c.now()))
    c.shard("Walk", is_active=False, _id=c.id("a third shard", c.now()))


@case
def shard_without_name(c: Case) -> None:
    c.shard("unnamed", is_active=False, shard_name=None)


@case
def limits_of_shards(c: Case) -> None:
    c.shard(
        "Fair",
        is_active=False,
        max_facts_per_shard=7,
        max_agent_memories_before_consolidation=3,
    )


@case
def fact_in_two_shards(c: Case) -> None:
    shared = c.memory("fact", shard=c.shard_id("Walk"))
    c.shard("Walk", facts=[shared])
    c.shard("Workshop", facts=[shared])


@case
def fact_in_an_active_and_a_paused_shard(c: Case) -> None:
    shared = c.memory("fact", shard=c.shard_id("Walk"))
    c.shard("Walk", facts=[shared])
    c.shard("Fair", facts=[shared], is_active=False)


@case
def one_fact_in_two_documents(c: Case) -> None:
    text = c.words()
    first, second = c.memory("fact", text), c.memory("fact", f" {text}\n")
    c.shard("Walk", facts=[second])
    c.shard("Workshop", facts=[first])


@case
def fact_that_was_corrected(c: Case) -> None:
    fact = c.memory("fact")
    fact["updatedAt"] = fact["createdAt"] + timedelta(days=3, milliseconds=5)
    c.shard("Walk", facts=[fact])


@case
def fact_that_its_shard_let_go_of(c: Case) -> None:
    c.memory("fact", shard=c.shard_id("Walk"))
    c.shard("Walk", facts=[c.memory("fact", shard=c.shard_id("Walk"))])


@case
def equal_facts_of_two_agents(c: Case) -> None:
    """Each agent keeps its own."""
    text = c.words()
    c.shard("Walk", facts=[c.memory("fact", text)])
    other = c.id("second agent")
    c.account(other, "agent", "second", name="Second", owner=c.owner)
    second = c.memory("fact", text, agent_id=other)
    c.shard("Walk", facts=[second], agent_id=other, _id=c.id("shard of the second"))


@case
def absorbed_items(c: Case) -> None:
    lena = c.person("lena")
    c.directives(lena, 2)
    c.user_text(lena, f"VERSION: 3\n{c.words()}", pending=c.directives(lena, 1))
    shard = c.shard_id("Walk")
    c.memory("suggestion", shard=shard)
    c.shard("Walk", pending=[c.memory("suggestion", shard=shard)])
    paused = c.shard_id("Fair")
    c.memory("suggestion", shard=paused)
    c.shard("Fair", is_active=False)


@case
def episodes(c: Case) -> None:
    lena = c.person("lena")
    for _ in range(5):
        c.memory("episode", users=[lena])


@case
def is_active_turns_agent_memory_on(c: Case) -> None:
    c.shard("Walk")
    c.shard("Fair", is_active=False)


@case
def user_memory_enabled(c: Case) -> None:
    c.agent_account["user_memory_enabled"] = True
    c.user_text(c.person("lena"))


@case
def long_text_moves_whole(c: Case) -> None:
    c.user_text(c.person("lena"), f"VERSION: 2\n{' '.join(c.words() for _ in range(300))}")


@case
def text_of_other_scripts(c: Case) -> None:
    lena = c.person("lena")
    content = f"Grüße aus dem Hafen 🏮 {c.words()} 夜の港で会いましょう ‮txt.exe"
    c.user_text(lena, content, pending=[c.memory("directive", content, users=[lena])])


@case
def user_that_no_longer_exists(c: Case) -> None:
    gone = c.person("gone", known=False)
    c.user_text(gone, pending=c.directives(gone, 2))


@case
def text_without_an_owner(c: Case) -> None:
    c.user_text(None)
    c.user_text(c.person("lena"))


# -- older forms ---------------------------------------------------------------------------------


@case
def unabsorbed_directive_ids(c: Case) -> None:
    lena = c.person("lena")
    directives = [each["_id"] for each in c.directives(lena, 3)]
    c.user_text(lena, without=["unabsorbed_memory_ids"], unabsorbed_directive_ids=directives)


@case
def unabsorbed_directive_ids_beside_newer_ones(c: Case) -> None:
    lena = c.person("lena")
    old = [each["_id"] for each in c.directives(lena, 2)]
    c.user_text(lena, pending=c.directives(lena, 2), unabsorbed_directive_ids=old)


@case
def relevant_facts(c: Case) -> None:
    facts = [c.memory("fact")["_id"] for _ in range(3)]
    c.shard("Walk", without=["facts"], relevant_facts=facts)


@case
def relevant_facts_beside_newer_ones(c: Case) -> None:
    old = [c.memory("fact")["_id"] for _ in range(2)]
    c.shard("Walk", facts=[c.memory("fact")], relevant_facts=old)


@case
def fully_formed_memory_only(c: Case) -> None:
    c.user_text(c.person("lena"), "", fully_formed_memory=f"VERSION: 3\n{c.words(20)}")
    c.user_text(c.person("tomas"), None, fully_formed_memory=c.words(20))


@case
def fully_formed_memory_of_a_shard_only(c: Case) -> None:
    c.shard("Walk", "", fully_formed_memory=c.words(20))
    c.shard("Fair", "", fully_formed_memory=c.words(20), is_active=False)


@case
def fully_formed_memory_with_a_consolidated_section(c: Case) -> None:
    text = c.words(20)
    whole = f"{HEADER}\n\n## Consolidated user memory:\n\n{text}"
    c.user_text(c.person("lena"), "", fully_formed_memory=whole)


@case
def fully_formed_memory_of_nothing_but_its_header(c: Case) -> None:
    """v1 made it for everybody that ever spoke; there is no memory in it."""
    c.user_text(c.person("lena"), "", fully_formed_memory=HEADER)


@case
def fully_formed_memory_of_what_waits(c: Case) -> None:
    """All of it are directives and facts that have documents of their own."""
    lena = c.person("lena")
    first, second = c.directives(lena, 2)
    told = "\n".join(f"- {each['content']} (age: 3 days ago)" for each in (first, second))
    whole = f"{HEADER}\n\n## Recent user directives:\n\n{told}"
    c.user_text(lena, "", pending=[first, second], fully_formed_memory=whole)
    fact, idea = c.memory("fact"), c.memory("suggestion")
    assembled = (
        f"## Shard facts:\n\n- {fact['content']} (age: 1 days ago)\n\n"
        f"## Recent shard suggestions:\n\n- {idea['content']}"
    )
    c.shard("Walk", "", facts=[fact], pending=[idea], fully_formed_memory=assembled)


@case
def fully_formed_memory_beside_content(c: Case) -> None:
    lena = c.person("lena")
    text = c.words(20)
    (waiting,) = c.directives(lena, 1)
    whole = (
        f"{HEADER}\n\n## Consolidated user memory:\n\n{text}\n\n"
        f"## Recent user directives:\n\n- {waiting['content']} (age: 3 days ago)"
    )
    c.user_text(lena, text, pending=[waiting], fully_formed_memory=whole)


@case
def fully_formed_memory_shard(c: Case) -> None:
    """The name that it had until August 2025."""
    c.shard("Walk", "", without=["fully_formed_memory"], fully_formed_memory_shard=c.words(20))


@case
def fully_formed_memory_shard_beside_content(c: Case) -> None:
    text = c.words(20)
    whole = f"### Walk memory content:\n\n### Current Consolidated Memory:\n\n{text}"
    c.shard("Walk", text, without=["fully_formed_memory"], fully_formed_memory_shard=whole)


@case
def total_word_count_lines(c: Case) -> None:
    c.user_text(c.person("lena"), f"VERSION: 2\n{c.words(20)}\n\n-- Total word count: 27")
    c.user_text(c.person("tomas"), f"{c.words(20)}\n\n-- Total word count: 27 --")
    inside = f"{c.words()}\n-- Total word count: 8 --\n{c.words()}\n\n-- Total word count: 19"
    c.user_text(c.person("jun"), inside)
    c.shard("Walk", f"VERSION: 6\n{c.words()}\n\n-- Total word count: 8")
    c.shard("Fair", f"{c.words()}\n\n-- Total word count: 8 --", is_active=False)


@case
def total_word_count_in_a_sentence(c: Case) -> None:
    """What somebody says of a word count is memory."""
    c.user_text(c.person("lena"), f"{c.words()} She ends with -- Total word count: 8 -- always.")


@case
def user_memory_disabled(c: Case) -> None:
    c.agent_account["user_memory_enabled"] = False
    lena = c.person("lena")
    c.user_text(lena, pending=c.directives(lena, 1))
    c.shard("Walk")


@case
def related_users_of_collective_memory(c: Case) -> None:
    lena, tomas = c.person("lena"), c.person("tomas")
    c.shard(
        "Walk",
        facts=[c.memory("fact", users=[lena]), c.memory("fact", users=[lena, tomas])],
        pending=[c.memory("suggestion", users=[tomas])],
    )


@case
def related_users_of_one_fact_in_two_documents(c: Case) -> None:
    lena, tomas, text = c.person("lena"), c.person("tomas"), c.words()
    facts = [c.memory("fact", text, users=[lena]), c.memory("fact", text, users=[tomas])]
    c.shard("Walk", facts=facts)


@case
def persona(c: Case) -> None:
    c.agent_account["persona"] = f"You are {c.words(20)}"
    c.user_text(c.person("lena"))


@case
def second_account_of_a_person(c: Case) -> None:
    lena = c.person("lena")
    c.database["users3"][-1]["eden_user_id"] = lena
    discord = c.person("lena_on_discord", eden_user_id=lena)
    c.user_text(lena, pending=[c.memory("directive", users=[discord])])


@case
def text_of_a_second_account(c: Case) -> None:
    lena = c.person("lena")
    discord = c.person("lena_on_discord", eden_user_id=lena)
    c.user_text(discord, pending=[c.memory("directive", users=[discord])])


@case
def memory_without_type_of_a_user_and_a_shard(c: Case) -> None:
    lena = c.person("lena")
    untyped = c.memory(None, without=["memory_type"])
    fact = c.memory(None, without=["memory_type"])
    c.user_text(lena, pending=[untyped, fact])
    c.shard("Walk", pending=[untyped], facts=[fact])


@case
def memory_without_type_of_an_active_and_a_paused_shard(c: Case) -> None:
    untyped = c.memory(None)
    c.shard("Walk", facts=[untyped])
    c.shard("Fair", facts=[untyped], is_active=False)


@case
def memory_without_type_of_one_list(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(lena, pending=[c.memory(None, without=["memory_type"])])
    c.shard("Walk", facts=[c.memory(None, without=["memory_type"])])


@case
def snake_case_times(c: Case) -> None:
    made, changed = c.now(), c.now()
    fact = c.memory("fact", without=["createdAt", "updatedAt"], created_at=made, updated_at=changed)
    c.shard("Walk", facts=[fact])


# -- conflicts within v1 -------------------------------------------------------------------------


@case
def two_texts_for_one_pair(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(lena, f"VERSION: 2\n{c.words()}", pending=c.directives(lena, 1))
    c.user_text(lena, f"VERSION: 5\n{c.words()}", pending=c.directives(lena, 1))


@case
def two_texts_for_one_pair_with_versions_that_go_back(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(lena, f"VERSION: 8\n{c.words()}")
    c.user_text(lena, f"VERSION: 3\n{c.words()}")


@case
def the_same_text_twice_for_one_pair(c: Case) -> None:
    lena, text = c.person("lena"), c.words(20)
    c.user_text(lena, text)
    c.user_text(lena, text)


@case
def a_newer_text_that_is_empty(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(lena, f"VERSION: 4\n{c.words()}")
    c.user_text(lena, "", fully_formed_memory=None, pending=c.directives(lena, 1))


@case
def three_texts_for_one_pair(c: Case) -> None:
    lena = c.person("lena")
    for version in (1, 2, 3):
        c.user_text(lena, f"VERSION: {version}\n{c.words()}")


@case
def two_accounts_of_one_person(c: Case) -> None:
    lena = c.person("lena")
    discord = c.person("lena_on_discord", eden_user_id=lena)
    c.user_text(lena, f"VERSION: 2\n{c.words()}", pending=c.directives(lena, 1))
    c.user_text(discord, f"VERSION: 3\n{c.words()}", pending=c.directives(discord, 1))


# -- odd values ----------------------------------------------------------------------------------


@case
def dates_as_text(c: Case) -> None:
    moment = c.now()
    iso = moment.isoformat()
    c.shard(
        "Walk",
        facts=[
            c.memory("fact", createdAt=iso, updatedAt=iso),
            c.memory("fact", createdAt=iso.replace("+00:00", "Z"), updatedAt=None),
            c.memory("fact", createdAt=iso.replace("+00:00", ""), updatedAt=None),
            c.memory("fact", createdAt=iso.replace("+00:00", "+02:00"), updatedAt=None),
        ],
        last_updated_at=iso,
    )


@case
def dates_as_text_of_milliseconds(c: Case) -> None:
    c.shard(
        "Walk",
        facts=[c.memory("fact", createdAt="1754042400000", updatedAt=None)],
        last_updated_at="1754042401234",
    )


@case
def dates_as_text_of_seconds(c: Case) -> None:
    c.shard("Walk", facts=[c.memory("fact", createdAt="1754042400", updatedAt=None)])


@case
def dates_as_seconds(c: Case) -> None:
    c.shard(
        "Walk",
        facts=[
            c.memory("fact", createdAt=1754042400, updatedAt=None),
            c.memory("fact", createdAt=1754042400.5, updatedAt=None),
        ],
        last_updated_at=1754042401,
    )


@case
def dates_as_milliseconds(c: Case) -> None:
    c.shard(
        "Walk",
        facts=[c.memory("fact", createdAt=1754042400123, updatedAt=None)],
        last_updated_at=1754042401234,
    )


@case
def dates_that_are_none(c: Case) -> None:
    lena = c.person("lena")
    waiting = [
        c.memory("directive", users=[lena], createdAt=odd, updatedAt=None)
        for odd in ("yesterday", True, {"a": 1}, [], None)
    ]
    c.user_text(lena, pending=waiting, last_updated_at="soon")


@case
def dates_that_are_missing(c: Case) -> None:
    c.shard("Walk", facts=[c.memory("fact", without=["createdAt", "updatedAt"])])


@case
def ids_as_text(c: Case) -> None:
    lena = c.person("lena")
    fact = c.memory("fact", agent_id=str(c.agent), source_message_ids=[str(c.id("message"))])
    directive = c.memory("directive", users=[str(lena).upper()])
    c.user_text(str(lena), pending=[str(directive["_id"])], agent_id=f" {c.agent} ")
    c.shard("Walk", facts=[{"$oid": str(fact["_id"])}])


@case
def non_ids_in_lists_of_memories(c: Case) -> None:
    lena = c.person("lena")
    first, second = c.directives(lena, 2)
    odd = [first["_id"], "no id", 7, None, True, {"a": 1}, [], second["_id"]]
    c.user_text(lena, unabsorbed_memory_ids=odd)
    c.shard("Walk", facts=["no id", c.memory("fact")["_id"], 3.5])


@case
def non_ids_in_source_messages(c: Case) -> None:
    real = c.id("real message")
    odd = ["no id", real, 7, None, {"a": 1}]
    c.shard("Walk", facts=[c.memory("fact", source_message_ids=odd)])


@case
def non_ids_in_related_users(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(lena, pending=[c.memory("directive", users=["no id", lena, 7, None])])


@case
def lists_that_are_something_else(c: Case) -> None:
    lena = c.person("lena")
    first, second = c.directives(lena, 2)
    c.user_text(lena, unabsorbed_memory_ids={"0": first["_id"], "1": second["_id"]})
    c.shard("Walk", facts=c.memory("fact")["_id"], unabsorbed_memory_ids=None)
    c.shard("Fair", facts=None, without=["unabsorbed_memory_ids"])


@case
def session_that_is_no_id(c: Case) -> None:
    c.shard("Walk", facts=[c.memory("fact", source_session_id="no id")])


@case
def control_characters(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(
        lena,
        f"{c.words()}\x00\x1b[31m\r\n{c.words()}\x7f",
        pending=[c.memory("directive", f"{c.words()}\x00\tand\x07 more", users=[lena])],
    )


@case
def unknown_fields(c: Case) -> None:
    lena = c.person("lena")
    c.user_text(lena, mood="unknown", pending=[c.memory("directive", users=[lena], rank=3)])


@case
def memory_without_agent(c: Case) -> None:
    """It belongs to the agent whose list has it."""
    lena = c.person("lena")
    c.user_text(lena, pending=[c.memory("directive", users=[lena], agent_id=None)])
