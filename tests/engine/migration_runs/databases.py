"""Hypothesis strategies for small v1 databases with all kinds of dirt."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.v1_files import Database
from tests.support.v1_world import account, memory, oid, shard, user_text

AGENTS = (oid(1), oid(2))
USERS = (oid(10), oid(11))
SHARDS = tuple(oid(20 + n) for n in range(3))
#: IDs are derived from numbers, so that lists can contain existing and missing memories.
MEMORIES = range(100, 116)

_people = st.sampled_from((*USERS, oid(16)))
_contents = st.sampled_from(
    (
        "Answer in two sentences.",
        "The walk starts at 17:30.",
        "Rice paper costs 0.80 euros.",
        "  Fold on Tuesdays too. ",
        "Grüße aus dem Hafen 🏮",
        "line one\nline two",
    )
)
_ids = st.sampled_from([oid(n, n / 10) for n in MEMORIES] + [oid(999, 9.0)])


def _lists(draw: Any) -> Any:
    """Draw lists of memory IDs: repeated, foreign, dangling, as text, or invalid."""
    ids: list[Any] = draw(st.lists(_ids, max_size=6))
    return draw(
        st.sampled_from(
            (ids, ids, ids, [str(one) for one in ids], {"0": ids[0]} if ids else None, None)
        )
    )


def _spoiled(draw: Any, document: dict[str, Any]) -> dict[str, Any]:
    """Sometimes remove a field, or set it to null or another type."""
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 2)))):
        field = draw(st.sampled_from(sorted(set(document) - {"_id"})))
        match draw(st.sampled_from(("gone", "null", "text", "number", "extra"))):
            case "gone":
                del document[field]
            case "null":
                document[field] = None
            case "text":
                document[field] = str(document[field])
            case "number":
                document[field] = 7
            case _:
                document["mood"] = "unknown"
    return document


@st.composite
def databases(draw: Any) -> Database:
    """Draw all collections of a small v1 database."""
    kinds = st.sampled_from(("directive", "directive", "fact", "suggestion", "episode", "insight"))
    found: dict[str, list[Any]] = {"memory_sessions": [], "memory_user": [], "memory_agent": []}
    for number in draw(st.lists(st.sampled_from(MEMORIES), max_size=14)):  # an id may come twice
        found["memory_sessions"].append(
            _spoiled(
                draw,
                memory(
                    number,
                    draw(kinds),
                    f"{draw(_contents)}{draw(st.sampled_from(('', f' ({number})')))}",
                    agent=draw(st.sampled_from(AGENTS)),
                    users=draw(st.lists(_people, max_size=2)),
                    shard=draw(st.sampled_from((None, *SHARDS))),
                ),
            )
        )
    for number in range(draw(st.integers(0, 4))):
        found["memory_user"].append(
            _spoiled(
                draw,
                user_text(
                    30 + number,
                    draw(_people),
                    draw(st.sampled_from(("", "VERSION: 3\n", "version: x "))) + draw(_contents),
                    agent=draw(st.sampled_from(AGENTS)),
                    unabsorbed_memory_ids=_lists(draw),
                ),
            )
        )
    for place in range(draw(st.integers(0, 3))):
        found["memory_agent"].append(
            _spoiled(
                draw,
                shard(
                    SHARDS[place],
                    draw(st.sampled_from(("Walk", "Walk", "Fair"))),
                    f"VERSION: 2\n{draw(_contents)}",
                    agent_id=draw(st.sampled_from(AGENTS)),
                    is_active=draw(st.booleans()),
                    facts=_lists(draw),
                    unabsorbed_memory_ids=_lists(draw),
                ),
            )
        )
    if draw(st.booleans()):
        found["users3"] = [
            account(AGENTS[0], "agent", "mira", owner=USERS[0]),
            account(USERS[0], "user", "lena"),
            account(USERS[1], "user", "tomas", eden_user_id=USERS[0]),
        ]
    return found


@st.composite
def options(draw: Any) -> dict[str, Any]:
    """Draw options of a migration."""
    return {
        "shards": draw(st.sampled_from(("merge", "keep"))),
        "provenance": draw(st.booleans()),
        "episodes": draw(st.sampled_from(("leave", "keep"))),
    }
