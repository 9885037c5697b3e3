"""The v1 memory of the example community, with one of each defect of real dumps.

``python -m tests.support.v1_world`` writes ``examples/v1_dump``.

Each defect has a name in `DIRT`; ``examples/v1_dump/README.md`` explains and tests check them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bson
from bson import ObjectId

from tests.support.v1_files import Database, Document, write_dump

EXAMPLE = Path(__file__).parents[2] / "examples" / "v1_dump"

#: The autumn before the community moved to v2.
START = datetime(2026, 9, 1, 9, 0, tzinfo=UTC)


def at(days: float) -> datetime:
    """Return the time a number of days after the start."""
    return START + timedelta(days=days)


def oid(number: int, days: float = 0) -> ObjectId:
    """Return the ID of the document with this number and the time of ``days``."""
    seconds = int(at(days).timestamp())
    return ObjectId(seconds.to_bytes(4, "big") + b"\xed\xe2\x01" + number.to_bytes(5, "big"))


MIRA, OTTO = oid(1), oid(2)
LENA, TOMAS, JUN, SAMIRA, PRIYA = (oid(10 + n) for n in range(5))
PRIYA_ON_DISCORD = oid(15)
GONE = oid(16)  # deleted account with remaining memory
WALK, WORKSHOP, WALK_AGAIN, FAIR, LIGHTS, NOBODYS = (oid(20 + n) for n in range(6))

#: Several megabytes, compressible.
LONG_TEXT = "VERSION: 12\n" + "Lamp by lamp: the quay is lit from the ferry hall on. " * 24_000


def memory(
    number: int,
    kind: str | None,
    content: Any,
    *,
    agent: Any = MIRA,
    users: Any = (),
    shard: Any = None,
    days: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return a document of ``memory_sessions``, changed by ``more``."""
    when = at(number / 10 if days is None else days)
    document = {
        "_id": oid(number, number / 10),
        "agent_id": agent,
        "source_session_id": oid(1000 + number // 10),
        "memory_type": kind,
        "content": content,
        "source_message_ids": [oid(2000 + number), oid(2500 + number)],
        "related_users": list(users) if isinstance(users, Sequence) else users,
        "shard_id": shard,
        "agent_owner": LENA,
        "createdAt": when,
        "updatedAt": when,
    }
    return document | more


def user_text(number: int, user: Any, content: Any, *, agent: Any = MIRA, **more: Any) -> Document:
    """Return a document of ``memory_user``."""
    document = {
        "_id": oid(number),
        "agent_id": agent,
        "user_id": user,
        "content": content,
        "agent_owner": LENA,
        "unabsorbed_memory_ids": [],
        "fully_formed_memory": f"## Consolidated user memory:\n{content}",
        "last_updated_at": at(40),
        "createdAt": at(1),
        "updatedAt": at(40),
    }
    return document | more


def shard(document_id: ObjectId, name: Any, content: Any, **more: Any) -> dict[str, Any]:
    """Return a document of ``memory_agent``."""
    document = {
        "_id": document_id,
        "agent_id": MIRA,
        "shard_name": name,
        "extraction_prompt": f"Remember what matters for: {name}",
        "is_active": True,
        "agent_owner": LENA,
        "content": content,
        "unabsorbed_memory_ids": [],
        "facts": [],
        "fully_formed_memory": f"## Current consolidated shard memory:\n{content}",
        "last_updated_at": at(41),
        "max_facts_per_shard": 50,
        "max_agent_memories_before_consolidation": 16,
        "createdAt": at(0),
        "updatedAt": at(41),
    }
    return document | more


def account(document_id: ObjectId, kind: str, username: str, **more: Any) -> dict[str, Any]:
    """Return a document of the host's ``users3``."""
    return {"_id": document_id, "type": kind, "username": username, "createdAt": at(0)} | more


def _damaged_text(document: Document) -> bytes:
    """Return the document with invalid UTF-8 in its text."""
    raw = bson.encode(document)
    assert raw.count(b"fog~horn") == 1
    return raw.replace(b"fog~horn", b"fog\xffhorn")


def _cut_off(document: Document) -> bytes:
    """Return the truncated document."""
    return bson.encode(document)[:-40]


#: Defect → (collection, ID of its document).
DIRT: dict[str, tuple[str, str]] = {
    "ids as strings": ("memory_user", str(oid(31))),
    "ids as dicts": ("memory_sessions", str(oid(105, 10.5))),
    "missing fields": ("memory_agent", str(LIGHTS)),
    "null fields": ("memory_user", str(oid(36))),
    "lists as dicts": ("memory_agent", str(WORKSHOP)),
    "a pending id that points nowhere": ("memory_user", str(oid(30))),
    "a pending id of another user's memory": ("memory_user", str(oid(30))),
    "a pending id of another agent's memory": ("memory_user", str(oid(37))),
    "a fact listed twice": ("memory_sessions", str(oid(120, 12.0))),
    "a fact in two shards": ("memory_sessions", str(oid(121, 12.1))),
    "one fact in two documents": ("memory_sessions", str(oid(123, 12.3))),
    "a suggestion among facts": ("memory_sessions", str(oid(131, 13.1))),
    "a shard name that repeats": ("memory_agent", str(WALK_AGAIN)),
    "two texts for one pair": ("memory_user", str(oid(32))),
    "naive times": ("memory_sessions", str(oid(141, 14.1))),
    "times as strings": ("memory_user", str(oid(37))),
    "no time": ("memory_sessions", str(oid(142, 14.2))),
    "a text of megabytes": ("memory_agent", str(LIGHTS)),
    "invalid UTF-8": ("memory_sessions", str(oid(143, 14.3))),
    "unknown fields": ("memory_agent", str(LIGHTS)),
    "a user that no longer exists": ("memory_user", str(oid(35))),
    "memory of an account, not of its person": ("memory_user", str(oid(34))),
    "control characters": ("memory_user", str(oid(37))),
    "a memory of unknown type": ("memory_sessions", str(oid(144, 14.4))),
    "an empty memory": ("memory_sessions", str(oid(145, 14.5))),
    "a fact that is too long": ("memory_sessions", str(oid(124, 12.4))),
    "two documents with one id": ("memory_sessions", f"{oid(140, 14.0)}#2"),
    "a shard without an agent": ("memory_agent", str(NOBODYS)),
    "a text without a user": ("memory_user", str(oid(38))),
    "a last document that is cut off": ("memory_sessions", str(oid(150, 15.0))),
}


def world() -> Database:
    """Return all collections of the dump, with documents in order of creation."""
    return {
        "memory_sessions": _memories(),
        "memory_user": _user_texts(),
        "memory_agent": _shards(),
        "users3": [
            account(MIRA, "agent", "mira", name="Mira", owner=LENA),
            account(OTTO, "agent", "otto", name="Otto", owner=TOMAS),
            account(LENA, "user", "lena"),
            account(TOMAS, "user", "tomas"),
            account(JUN, "user", "jun"),
            account(SAMIRA, "user", "samira"),
            account(PRIYA, "user", "priya"),
            account(PRIYA_ON_DISCORD, "user", "priya#4711", eden_user_id=PRIYA),
        ],
    }


def _memories() -> list[Document]:
    naive = at(14.1).replace(tzinfo=None).isoformat()
    anonymous = memory(142, "episode", "Jun asked when the cables come.", agent=OTTO, users=[JUN])
    del anonymous["createdAt"], anonymous["updatedAt"]
    return [
        # Directives of Lena, Tomas, Samira, Priya and Jun; the first ones are already consolidated.
        memory(100, "directive", "Always answer Lena in two sentences.", users=[LENA]),
        memory(101, "directive", "Use metric units for Lena.", users=[LENA]),
        memory(102, "directive", "Tell Lena the price before anything is ordered.", users=[LENA]),
        memory(103, "directive", "Never round amounts for Tomas.", users=[TOMAS]),
        memory(104, "directive", "Send Tomas the total first.", users=[TOMAS]),
        memory(
            105,
            "directive",
            "Call Tomas 'treasurer' in letters.",
            agent={"$oid": str(MIRA)},
            users=[{"$oid": str(TOMAS)}],
        ),
        memory(106, "directive", "Ask Samira before pictures are used.", users=[SAMIRA]),
        memory(107, "directive", "Write to Samira in French on Fridays.", users=[SAMIRA]),
        memory(108, "directive", "Priya wants sources.", users=[PRIYA_ON_DISCORD]),
        memory(109, "directive", "Remind Jun of the ladder.", agent=OTTO, users=[JUN]),
        memory(110, "directive", "Speak of watts, not of lumens.", agent=OTTO, users=[LENA]),
        # Facts of Mira's shards.
        memory(120, "fact", "The Lantern Walk is on 12 December 2026.", shard=WALK),
        memory(121, "fact", "The ferry hall opens at 16:00.", shard=WALK),
        memory(122, "fact", "Rice paper costs 0.80 euros a sheet.", shard=WORKSHOP),
        memory(123, "fact", "The Lantern Walk is on 12 December 2026.", shard=WORKSHOP),
        memory(
            124,
            "fact",
            "The route goes from the ferry hall along the quay, past the old customs house and "
            "the three cranes, over the swing bridge, around the fish market and back along the "
            "inner harbour to the ferry hall again.",
            shard=WALK,
        ),
        memory(125, "fact", "The budget was 9,000 euros in 2024.", shard=WALK),  # let go of
        memory(126, "fact", "The fair of 2025 had 61 stalls.", shard=FAIR),
        memory(127, "fact", "The quay has 48 lamps.", agent=OTTO, shard=LIGHTS),
        # Suggestions.
        memory(130, "suggestion", "Let children carry the first lantern.", shard=WALK),
        memory(131, "suggestion", "The walk needs a rain date.", shard=WALK),
        memory(132, "suggestion", "Fold on Tuesdays too.", shard=WORKSHOP),
        memory(133, "suggestion", "Move the fair to May.", shard=FAIR),
        memory(134, "suggestion", "Hand out song sheets.", shard=WALK_AGAIN),
        # Episodes, and defects of all kinds.
        memory(140, "episode", "Lena and Mira counted lanterns.", users=[LENA]),
        memory(
            140,
            "episode",
            "Lena and Mira counted helpers.",
            users=[LENA],
            _id=str(oid(140, 14.0)),
        ),
        memory(
            141,
            "fact",
            "The insurance costs 380 euros.",
            shard=WALK,
            createdAt=naive,
            updatedAt=naive,
        ),
        anonymous,
        _damaged_text(
            memory(143, "fact", "The fog~horn is at the mole.", agent=OTTO, shard=LIGHTS)
        ),
        memory(144, "insight", "Mira thinks that Tomas worries.", users=[TOMAS]),
        memory(145, "directive", "   ", users=[LENA]),
        memory(146, "directive", "Share the plan with both.", users=[LENA, TOMAS]),
        _cut_off(memory(150, "episode", "Nobody knows how this ended.", users=[LENA])),
    ]


def _user_texts() -> list[Document]:
    return [
        user_text(
            30,
            LENA,
            "VERSION: 4\nLena runs the paper workshop.\nShe reads on her phone.",
            unabsorbed_memory_ids=[
                oid(101, 10.1),
                oid(145, 14.5),
                oid(102, 10.2),
                oid(999, 9.0),  # nowhere
                oid(104, 10.4),  # Tomas's
            ],
        ),
        user_text(
            31,
            str(TOMAS),
            "VERSION: 2\nTomas is the treasurer.",
            agent=str(MIRA),
            unabsorbed_memory_ids=[str(oid(104, 10.4)), {"$oid": str(oid(105, 10.5))}],
        ),
        user_text(
            32,
            SAMIRA,
            "VERSION: 1\nSamira takes the photographs.",
            unabsorbed_memory_ids=[oid(106, 10.6)],
            last_updated_at=at(20),
        ),
        user_text(
            33,
            SAMIRA,
            "VERSION: 3\nSamira takes the photographs and keeps the archive.",
            unabsorbed_memory_ids=[oid(107, 10.7)],
        ),
        user_text(
            34,
            PRIYA_ON_DISCORD,
            "VERSION: 5\nPriya checks what she reads.",
            unabsorbed_memory_ids=[oid(108, 10.8)],
        ),
        user_text(35, GONE, "VERSION: 1\nShe brought the drums."),
        user_text(
            36,
            JUN,
            None,
            agent=OTTO,
            unabsorbed_memory_ids=None,
            fully_formed_memory=None,
            last_updated_at=None,
        ),
        user_text(
            37,
            LENA,
            "VERSION: 2\nLena borrows Otto's\x00 ladder\x1b[31m.",
            agent=OTTO,
            unabsorbed_memory_ids=[oid(110, 11.0), oid(100, 10.0)],  # the second is Mira's
            last_updated_at="2026-10-11T09:00:00",
            createdAt="2026-09-02T11:00:00+02:00",
            updatedAt=int(at(40).timestamp() * 1000),
        ),
        user_text(38, None, "VERSION: 1\nWhose is this?"),
    ]


def _shards() -> list[Document]:
    lights = shard(LIGHTS, "Lights", LONG_TEXT, agent_id=OTTO, facts=[oid(127, 12.7)])
    lights["facts"].append(oid(143, 14.3))
    del lights["unabsorbed_memory_ids"], lights["max_facts_per_shard"], lights["extraction_prompt"]
    nobodys = shard(NOBODYS, "Nobody's", "VERSION: 1\nIt is not known who knew this.")
    del nobodys["agent_id"]
    return [
        shard(
            WALK,
            "Lantern Walk",
            "VERSION: 7\nThe walk starts at the ferry hall at 17:30.\nAbout 400 people come.",
            facts=[
                oid(120, 12.0),
                oid(121, 12.1),
                oid(124, 12.4),
                oid(141, 14.1),
                oid(120, 12.0),  # again
                oid(131, 13.1),  # a suggestion
            ],
            unabsorbed_memory_ids=[oid(130, 13.0)],
        ),
        shard(
            WORKSHOP,
            "Workshop",
            "VERSION: 3\nSix volunteers fold on Thursdays.",
            facts={"0": oid(122, 12.2), "1": oid(121, 12.1), "2": oid(123, 12.3)},
            unabsorbed_memory_ids=[oid(132, 13.2)],
        ),
        shard(
            WALK_AGAIN,
            "Lantern Walk",
            "VERSION: 1\nMade by a second click.",
            unabsorbed_memory_ids=[oid(134, 13.4)],
        ),
        shard(
            FAIR,
            "Harbour fair",
            "VERSION: 2\nThe fair rests until somebody takes it over.",
            is_active=False,
            facts=[oid(126, 12.6)],
            unabsorbed_memory_ids=[oid(133, 13.3)],
        ),
        lights | {"theme_color": "#ffcc00", "pinned_by": [TOMAS], "importance": 3},
        nobodys,
    ]


def write_example() -> None:
    """Write the dump of the examples."""
    write_dump(EXAMPLE, world(), gz=True)


if __name__ == "__main__":
    write_example()
