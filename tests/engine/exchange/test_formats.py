"""The files of other systems: what comes, what is left out, and that nothing comes twice.

The examples are written by hand after the sources named with each.
"""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from edenmem.engine.exchange import files
from edenmem.engine.exchange.exporter import ExportRequest
from edenmem.engine.exchange.formats.notes import statements
from edenmem.engine.exchange.kinds import FileKind, System, kind_of
from edenmem.engine.exchange.systems import write_for
from edenmem.errors import InputError, NotFoundError
from edenmem.models.ids import derived_id
from edenmem.models.scope import Scope
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, make_agent, make_fact, make_user
from tests.support.importing import convert, facts_of, messages_of, source_of, take
from tests.support.memory import add_facts, consolidate

pytestmark = pytest.mark.slow


def talk(*nodes: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes of ChatGPT's tree; each follows the one before unless it names a parent."""
    mapping: dict[str, Any] = {"root": {"id": "root", "message": None, "parent": None}}
    last = "root"
    for number, node in enumerate(nodes):
        id = f"node-{number}"
        mapping[id] = {"id": id, "parent": node.pop("parent", last), "message": node}
        last = id
    return mapping


def said(role: str, text: Any, at: float | None = None, **fields: Any) -> dict[str, Any]:
    parts = text if isinstance(text, list) else [text]
    return {
        "id": "m",
        "author": {"role": role, "name": None, "metadata": {}},
        "create_time": at,
        "content": {"content_type": "text", "parts": parts},
        "metadata": {},
        "recipient": "all",
        **fields,
    }


#: conversations.json of chatgpt.com, as described by mitkury/chatgpt-export-parser (2025) and
#: shown by exports of 2024 to 2026: a tree of messages, of which `current_node` ends the branch
#: that is shown.
CHATGPT = [
    {
        "title": "Moving to Porto",
        "create_time": 1709654400.5,
        "update_time": 1709658000.0,
        "conversation_id": "65e7-c1",
        "id": "65e7-c1",
        "is_do_not_remember": False,
        "default_model_slug": "gpt-4o",
        "mapping": talk(
            said("system", "", metadata={"is_visually_hidden_from_conversation": True}),
            said(
                "user",
                "",
                content={"content_type": "user_editable_context", "user_profile": "Be brief."},
            ),
            said(
                "user",
                [
                    {"content_type": "image_asset_pointer", "asset_pointer": "x"},
                    "I moved to Porto.",
                ],
                1709654401.25,
                content={
                    "content_type": "multimodal_text",
                    "parts": [{"content_type": "image_asset_pointer"}, "I moved to Porto."],
                },
            ),
            said("assistant", "Old answer.", 1709654402),
            said("assistant", "search()", 1709654403, parent="node-2", recipient="browser"),
            said("tool", "a page", 1709654404),
            said(
                "assistant",
                "",
                content={"content_type": "thoughts", "thoughts": [{"content": "?"}]},
            ),
            said("assistant", "Nice, Porto!", 1709654405),
        ),
        "current_node": "node-7",
    },
    {
        "title": "Aside",
        "conversation_id": "65e7-c2",
        "is_do_not_remember": True,
        "mapping": talk(said("user", "Between us.", 1709754405)),
        "current_node": "node-0",
    },
    {"title": "Empty", "id": "65e7-c3", "mapping": talk(), "current_node": "root"},
]

#: conversations.json of claude.ai (2024 to 2026), as simonw and others describe it: messages in
#: order, since 2025 with the parent of each.
CLAUDE = [
    {
        "uuid": "0191-a",
        "name": "Bread",
        "summary": "",
        "created_at": "2025-07-01T08:00:00.123456Z",
        "updated_at": "2025-07-01T09:00:00Z",
        "account": {"uuid": "9f-account"},
        "chat_messages": [
            {
                "uuid": "m1",
                "text": "I bake on Sundays.",
                "content": [{"type": "text", "text": "I bake on Sundays.", "citations": []}],
                "sender": "human",
                "created_at": "2025-07-01T08:00:01Z",
                "attachments": [{"file_name": "", "extracted_content": "a recipe"}],
                "files": [{"file_name": "loaf.jpg"}],
                "parent_message_uuid": "00000000-0000-4000-8000-000000000000",
            },
            {
                "uuid": "m2",
                "text": "An answer that was edited away.",
                "content": [{"type": "text", "text": "An answer that was edited away."}],
                "sender": "assistant",
                "created_at": "2025-07-01T08:00:02Z",
                "parent_message_uuid": "m1",
            },
            {
                "uuid": "m3",
                "text": "",
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "Which flour?"},
                    {"type": "tool_use", "name": "web_search", "input": {}},
                ],
                "sender": "assistant",
                "created_at": "2025-07-01T08:00:03Z",
                "parent_message_uuid": "m1",
            },
        ],
    }
]

#: memory.jsonl of @modelcontextprotocol/server-memory 0.6.3 (src/memory/index.ts).
GRAPH: list[dict[str, Any]] = [
    {
        "type": "entity",
        "name": "Anna_Berg",
        "entityType": "person",
        "observations": ["Speaks fluent Spanish", "Graduated in 2019"],
    },
    {"type": "entity", "name": "Klangwerk", "entityType": "organization", "observations": []},
    {"type": "relation", "from": "Anna_Berg", "to": "Klangwerk", "relationType": "works_at"},
]

#: An agent file of Letta, as in letta-ai/agent-file (memgpt_agent_with_convo.af, loop.af).
LETTA = {
    "agents": [
        {
            "name": "memgpt_agent",
            "system": "<base_instructions>",
            "agent_type": "letta_v1_agent",
            "block_ids": ["block-0", "block-1"],
            "in_context_message_ids": ["message-0"],
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "You are…"}]},
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "text",
                            "text": json.dumps(
                                {"type": "user_message", "message": "I like rye.", "time": "…"}
                            ),
                        }
                    ],
                    "created_at": "2025-10-31T22:56:56.459100+00:00",
                },
                {
                    "role": "user",
                    "content": [{"type": "text", "text": '{"type": "heartbeat", "reason": "x"}'}],
                },
                {
                    "role": "assistant",
                    "content": [{"type": "reasoning", "reasoning": "…"}],
                    "tool_calls": [
                        {
                            "id": "c",
                            "function": {
                                "name": "send_message",
                                "arguments": '{"message": "Rye it is."}',
                            },
                        }
                    ],
                    "created_at": "2025-10-31T22:57:00+00:00",
                },
                {"role": "tool", "content": [{"type": "text", "text": "None"}]},
            ],
        }
    ],
    "blocks": [
        {"label": "human", "value": "# Anna\n\n- Name: Anna\n- Lives in Porto\n", "limit": 20000},
        {"label": "persona", "value": "I am helpful.", "limit": 20000},
    ],
    "tools": [{"name": "send_message"}],
    "metadata": {"revision_id": "f6cd5a1e519d"},
}

#: memories.json of OpenMemory's zip (mem0ai/mem0 1.0, openmemory/api/app/routers/backup.py).
OPENMEMORY = {
    "user": {"id": "u-1", "user_id": "anna", "name": "Anna", "email": None},
    "apps": [{"id": "app-1", "owner_id": "u-1", "name": "cursor"}],
    "categories": [{"id": "cat-1", "name": "food"}],
    "memories": [
        {
            "id": "m-1",
            "user_id": "u-1",
            "app_id": "app-1",
            "content": "Anna likes rye.",
            "metadata": {"source": "chat"},
            "state": "active",
            "created_at": "2025-03-01T02:00:00+00:00",
            "updated_at": "2025-03-01T02:00:00+00:00",
            "category_ids": ["cat-1"],
        },
        {"id": "m-2", "user_id": "u-1", "content": "Anna hates rye.", "state": "deleted"},
    ],
    "memory_categories": [{"memory_id": "m-1", "category_id": "cat-1"}],
    "status_history": [{"id": "h", "memory_id": "m-2", "old_state": "active"}],
    "access_controls": [],
    "export_meta": {"version": "1"},
}

#: The answer of get_episodes of Graphiti's MCP server 0.29 (graphiti_core/nodes.py), and episodes
#: of Zep Cloud (help.getzep.com, get-graph-episodes).
EPISODES = {
    "message": "Episodes retrieved successfully",
    "episodes": [
        {
            "uuid": "e2",
            "name": "turn 2",
            "content": "assistant: Noted.",
            "created_at": "2025-05-01T10:00:05+00:00",
            "source": "message",
            "source_description": "chat",
            "group_id": "g1",
        },
        {
            "uuid": "e1",
            "name": "turn 1",
            "content": "Anna: I row on Sundays.",
            "created_at": "2025-05-01T10:00:00+00:00",
            "source": "message",
            "source_description": "chat",
            "group_id": "g1",
        },
        {
            "uuid": "e3",
            "content": "Anna rows in the river.",
            "created_at": "2025-05-02T10:00:00+00:00",
            "source": "text",
            "source_description": "note",
            "group_id": "g1",
        },
        {
            "uuid": "e4",
            "content": "{}",
            "created_at": "2025-05-02T10:00:00+00:00",
            "source": "json",
            "source_description": "crm",
            "group_id": "g1",
        },
    ],
}
ZEP = [
    {
        "uuid": "z1",
        "content": "I row on Mondays.",
        "created_at": "2025-05-01T10:00:00Z",
        "role": "anna",
        "role_type": "user",
        "source": "message",
        "thread_id": "t1",
    }
]
#: Edges of Graphiti (graphiti_core/edges.py, EntityEdge).
EDGES = {
    "edges": [
        {"uuid": "d1", "name": "ROWS", "fact": "Anna rows.", "created_at": "2025-05-01T10:00:00Z"},
        {
            "uuid": "d2",
            "name": "SWIMS",
            "fact": "Anna swims.",
            "invalid_at": "2025-05-01T10:00:00Z",
        },
    ]
}

CHAT = [
    {"role": "system", "content": "Be kind."},
    {"role": "human", "content": [{"type": "text", "text": "I row."}, {"type": "image_url"}]},
    {"role": "assistant", "content": "Where?", "timestamp": 1709654405000},
]


#: For tests of what is stored.
BOTH = pytest.mark.parametrize("town", ["sqlite", "secantus"], indirect=True)


def lines(items: list[Any]) -> str:
    return "\n".join(map(json.dumps, items))


def spoken(store: Store, session: str) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages_of(store, session)]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (json.dumps(CHATGPT), FileKind.CHATGPT),
        (json.dumps(CHATGPT, indent=2), FileKind.CHATGPT),
        (json.dumps(CLAUDE), FileKind.CLAUDE),
        (lines(GRAPH), FileKind.MCP),
        (json.dumps({"entities": GRAPH[:1], "relations": []}), FileKind.MCP),
        (json.dumps(LETTA), FileKind.LETTA),
        (json.dumps(LETTA, indent=2), FileKind.LETTA),
        (json.dumps(json.dumps(LETTA)), FileKind.LETTA),
        (json.dumps(OPENMEMORY, indent=2), FileKind.OPENMEMORY),
        (json.dumps(EPISODES), FileKind.GRAPHITI),
        (json.dumps(ZEP), FileKind.GRAPHITI),
        (json.dumps(EDGES), FileKind.GRAPHITI),
        (json.dumps(CHAT), FileKind.MESSAGES),
        (json.dumps({"messages": CHAT}, indent=1), FileKind.MESSAGES),
        (json.dumps([CHAT, CHAT]), FileKind.MESSAGES),
        (lines([{"messages": CHAT}] * 2), FileKind.MESSAGES),
        (json.dumps({"results": []}), FileKind.MEM0),
        (json.dumps([{"id": "1", "memory": "x"}]), FileKind.MEM0),
        ('{"session": "s", "messages": []}\nnonsense', FileKind.SESSIONS),
        ('{"type": "fact", "content": "memory"}', FileKind.RECORDS),
        ('{"content": "a memory"}', FileKind.RECORDS),
        ("", FileKind.RECORDS),
        ("[]", FileKind.RECORDS),
    ],
)
def test_a_file_is_recognized_also_compressed(data: str, kind: FileKind) -> None:
    assert kind_of(source_of(data)) is kind
    assert kind_of(source_of(gzip.compress(data.encode()))) is kind
    assert kind_of(source_of("\ufeff" + data)) is kind


def test_a_file_of_no_bytes_is_an_error(tmp_path: Path) -> None:
    """A backup that was cut to nothing must not look restored."""
    (cut := tmp_path / "backup.jsonl.gz").touch()
    with pytest.raises(InputError, match="is empty"), files.Source.open_file(str(cut)):
        pass


@BOTH
def test_chatgpt_gives_the_branch_that_it_shows(town: Store) -> None:
    taken = take(town, json.dumps(CHATGPT), user="anna")
    assert spoken(town, "chatgpt-65e7-c1") == [
        ("user", "I moved to Porto."),
        ("assistant", "Nice, Porto!"),
    ]
    assert taken.survey.left_out == {
        "messages of other branches": 1,
        "custom instructions": 1,
        "images and files": 1,
        "tool calls and results": 2,
        "thoughts of the model": 1,
        "empty conversations": 1,
    }
    first, _ = messages_of(town, "chatgpt-65e7-c1")
    assert first.created_at == datetime(2024, 3, 5, 16, 0, 1, 250_000, UTC)
    (anna,) = town.host.find("user", "anna")
    assert first.sender == anna.id
    stored = [town.host.session(derived_id("session", f"chatgpt-65e7-c{n}")) for n in (1, 2)]
    assert [(s.title, s.incognito) for s in stored if s] == [
        ("Moving to Porto", False),
        ("Aside", True),  # ChatGPT was not to remember it either
    ]
    assert (taken.survey.sessions, taken.survey.messages, taken.survey.undated) == (2, 3, 0)
    assert take(town, json.dumps(CHATGPT), user="anna").chats.new_messages == 0


def test_a_tree_that_goes_round_or_nowhere_ends(town: Store) -> None:
    mapping = {
        "a": {"id": "a", "parent": "b", "message": said("user", "One.")},
        "b": {"id": "b", "parent": "a", "message": said("assistant", "Two.")},
        "c": "not a node",
    }
    odd = [{"id": "x", "mapping": mapping, "current_node": "gone"}]
    assert take(town, json.dumps(odd), user="anna").chats.new_messages == 2
    unnamed = [{"create_time": n, "mapping": talk(said("user", "Hi."))} for n in (1, 2)]
    assert take(town, json.dumps(unnamed), user="anna").chats.new_sessions == 2


def test_claude_gives_the_last_branch(town: Store) -> None:
    taken = take(town, json.dumps(CLAUDE), user="anna")
    assert spoken(town, "claude-0191-a") == [
        ("user", "I bake on Sundays."),
        ("assistant", "Which flour?"),
    ]
    assert taken.survey.left_out == {
        "messages of other branches": 1,
        "images and files": 2,
        "thoughts of the model": 1,
        "tool calls and results": 1,
    }
    old = [{"uuid": "o", "chat_messages": [{"sender": "human", "text": "Hi.", "created_at": None}]}]
    assert take(town, json.dumps(old), user="anna").survey.undated == 1
    assert spoken(town, "claude-o") == [("user", "Hi.")]


def test_lists_of_messages_are_chats(town: Store) -> None:
    taken = take(town, json.dumps(CHAT), name="/tmp/evening.json", user="anna")
    assert taken.survey.left_out == {"images and files": 1}
    (stored,) = town.host.sessions()
    assert stored.name is not None
    assert stored.name.startswith("chat-")
    assert [role for role, _ in spoken(town, stored.name)] == ["system", "user", "assistant"]
    *_, last = messages_of(town, stored.name)
    assert last.created_at == datetime(2024, 3, 5, 16, 0, 5, tzinfo=UTC)
    longer = json.dumps([*CHAT, {"role": "user", "content": "At home."}])
    assert take(town, longer, name="evening.json", user="anna").chats.new_messages == 1
    many = lines([{"id": f"b{n}", "messages": CHAT} for n in (1, 2)])
    assert take(town, many, user="anna").chats.new_sessions == 2
    assert len(messages_of(town, "chat-b2")) == 3


def test_who_spoke_is_asked_for_or_named_by_the_file(town: Store) -> None:
    unnamed, named = (
        [{"role": "user", "content": "Hi."}],
        [{"role": "user", "content": "Hi.", "name": "bela"}],
    )
    assert (
        take(town, json.dumps(unnamed), dry_run=True, agent=None, skip_bad=True).survey.agents == {}
    )
    survey = take(town, json.dumps(unnamed), dry_run=True).survey
    assert (survey.without_user, survey.without_agent) == (1, 0)
    with pytest.raises(NotFoundError, match="user 'bela'"):
        take(town, json.dumps(named))
    taken = take(town, json.dumps(named), add_missing=True)
    assert (taken.survey.users, taken.chats.users_added) == ({"bela": False}, ("bela",))
    fact = json.dumps([{"memory": "Cats purr."}])
    assert take(town, fact, skip_bad=True, agent=None).survey.without_agent == 1
    assert take(town, fact, skip_bad=True).survey.without_user == 1
    assert facts_of(town, None) == []
    assert take(town, fact, shared=True).facts.total("added") == 1
    assert len(facts_of(town, None)) == 1
    new = take(town, fact, agent="adam", user="carl", add_missing=True)
    assert new.facts.counts["agent"] == new.facts.counts["user"] == {"added": 1}


def test_the_knowledge_graph_of_mcp(town: Store) -> None:
    taken = take(town, lines(GRAPH), user="anna")
    assert {fact.content for fact in facts_of(town)} == {
        "Anna Berg: Speaks fluent Spanish",
        "Anna Berg: Graduated in 2019",
        "Anna Berg works at Klangwerk",
    }
    assert taken.survey.left_out["entities without observations"] == 1
    long = [{**GRAPH[0], "observations": ["word " * 40]}]
    assert take(town, lines(long), user="anna", dry_run=True).survey.long == 1
    assert take(town, lines(GRAPH), user="anna").facts.counts == {"fact": {"same": 3}}


@BOTH
def test_an_agent_file_of_letta(town: Store) -> None:
    taken = take(town, json.dumps(LETTA), user="anna")
    assert {fact.content for fact in facts_of(town)} == {"Name: Anna", "Lives in Porto"}
    assert spoken(town, "letta-memgpt_agent") == [
        ("user", "I like rye."),
        ("assistant", "Rye it is."),
    ]
    expected = {
        "system prompts and settings of agents": 1,
        "system messages": 1,
        "events of Letta": 1,
        "thoughts of the model": 1,
        "tool calls and results": 1,
        "personas of agents": 1,
        "tools": 1,
    }
    assert expected.items() <= taken.survey.left_out.items()


@BOTH
def test_a_backup_of_openmemory(town: Store) -> None:
    for data in (
        json.dumps(OPENMEMORY, indent=2),
        packed({"memories.json": OPENMEMORY}),
        lines(
            [
                {
                    "id": "m-1",
                    "content": "Anna likes rye.",
                    "state": "active",
                    "app": "cursor",
                    "metadata": {"source": "chat"},
                    "created_at": "2025-03-01T02:00:00+00:00",
                    "categories": ["food"],
                }
            ]
        ),
    ):
        taken = take(town, data, user="anna")
        assert [fact.content for fact in facts_of(town)] == ["Anna likes rye."]
    assert taken.facts.counts == {"fact": {"same": 1}}
    (fact,) = facts_of(town)
    assert (fact.key, fact.tags) == ("openmemory:m-1", ("food",))
    assert fact.metadata == {"source": "chat", "app": "cursor"}
    left_out = take(town, json.dumps(OPENMEMORY)).survey.left_out
    assert {"deleted memories": 1, "status changes": 1}.items() <= left_out.items()


def test_episodes_of_graphiti_and_zep(town: Store) -> None:
    taken = take(town, json.dumps(EPISODES), user="anna")
    assert spoken(town, "graphiti-g1") == [("user", "I row on Sundays."), ("assistant", "Noted.")]
    assert [fact.content for fact in facts_of(town)] == ["Anna rows in the river."]
    assert taken.survey.left_out == {"episodes with JSON": 1}
    assert take(town, json.dumps(ZEP)).survey.users == {"anna": True}
    assert spoken(town, "graphiti-t1") == [("user", "I row on Mondays.")]
    edges = take(town, json.dumps(EDGES), user="anna")
    assert edges.survey.left_out == {"facts that are no longer true": 1}
    assert {fact.content for fact in facts_of(town)} == {"Anna rows in the river.", "Anna rows."}


def test_notes_are_split_into_statements(town: Store, tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    (vault / ".obsidian").mkdir(parents=True)
    (vault / ".obsidian" / "plugin.md").write_text("Not a note.")
    (tmp_path / "outside.md").write_text("Nobody may read this.")
    (vault / "link.md").symlink_to(tmp_path / "outside.md")
    (vault / "Anna.md").write_text(
        "---\ntags: [people, friends]\ncreated: 2025-02-03\n---\n"
        "# Anna\n\nAnna lives in [[Porto|Porto city]] #home and likes **rye**. %% hidden %%\n\n"
        "## Work\n- Works at [Klangwerk](https://k.example) ^block\n"
        "  since 2019\n- [ ] call her\n* ![[photo.png]]\n1. Speaks `Spanish`\n\n"
        "```python\nprint('- no')\n```\n\n| a | b |\n|---|---|\n\n> She rows.\n"
    )
    (vault / "bad.md").write_bytes(b"\xff\xfe")
    taken = take(town, vault, user="anna")
    assert [fact.content for fact in sorted(facts_of(town), key=lambda f: f.content)] == [
        "Anna lives in Porto city and likes rye.",
        "She rows.",
        "Speaks Spanish",
        "Works at Klangwerk since 2019",
    ]
    left_out = taken.survey.left_out
    assert (left_out["tasks"], left_out["code blocks"], left_out["tables"]) == (1, 1, 1)
    assert any("bad.md" in name for name in left_out)
    assert {fact.formed_at for fact in facts_of(town)} == {datetime(2025, 2, 3, tzinfo=UTC)}
    reasons = {entry.reason for entry in town.log.audit(run_id=taken.facts.run_id)}
    assert "imported from Anna.md:10" in reasons
    assert take(town, vault, user="anna").facts.counts == {"fact": {"same": 4}}
    long = "A sentence of seven words is here. " * 6
    (vault / "Anna.md").write_text(long)
    assert take(town, vault, user="anna").survey.left_out["duplicates"] == 5


ODD: tuple[Any, ...] = (None, "x", [[1]], {"a": {}})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value within a value."""
    if not isinstance(value, dict | list):
        return
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        yield from places(each, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """Return a copy with another value at a path."""
    copy = json.loads(json.dumps(value))
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copy


@pytest.mark.parametrize(
    "example",
    [CHATGPT, CLAUDE, GRAPH, LETTA, OPENMEMORY, EPISODES, ZEP, EDGES, CHAT],
    ids=lambda example: str(example)[:20],
)
def test_values_of_another_type_never_break_the_import(town: Store, example: Any) -> None:
    for path in places(example):
        for new in ODD:
            data = json.dumps(changed(example, path, new))
            with ExitStack() as opened:
                source = source_of(data)
                convert(town, opened, source, user="anna")


def packed(files: dict[str, Any], **options: Any) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content if isinstance(content, bytes) else json.dumps(content))
    return raw.getvalue()


def test_an_archive_is_read_in_place(town: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "user.json": {"email": "anna@example.org"},
        "conversations-001.json": CHATGPT[1:],
        "../conversations-000.json": CHATGPT[:1],
        "chat.html": b"<html>",
    }
    taken = take(town, packed(parts), user="anna")
    assert (taken.survey.kind, taken.survey.sessions) == (FileKind.CHATGPT, 2)
    claude = packed(
        {"conversations.json": CLAUDE, "memories.json": [{"conversations_memory": "x"}]}
    )
    assert take(town, claude, user="anna").survey.sessions == 1
    with pytest.raises(InputError, match="no conversations"):
        kind_of(source_of(packed({"chat.html": b"x"})))
    with pytest.raises(InputError, match="archive is damaged"):
        kind_of(source_of(packed(parts)[:200]))
    monkeypatch.setattr(files, "_SMALL", 1000)
    with pytest.raises(InputError, match="little content"):
        kind_of(source_of(packed({"conversations.json": b" " * 1_000_000})))


@pytest.mark.parametrize("system", System)
def test_an_export_for_another_system_comes_back(
    town: Store, open_store: Callable[[str], Store], system: System
) -> None:
    (eve,), (anna,) = town.host.agents(), town.host.find("user", "anna")
    scopes = Scope.user(eve.id, anna.id), Scope.agent(eve.id)
    said = {scopes[0]: ["Anna bakes\non Sundays.", "Anna rows."], scopes[1]: ["Cats purr."]}
    fields: dict[str, Any] = {"tags": ("home",), "metadata": {"from": "Anna"}}
    fields["expires_at"] = datetime(2999, 1, 2, tzinfo=UTC)
    add_facts(town, make_fact(scopes[0], "Old.", expires_at=NOW))
    for scope, texts in said.items():
        add_facts(town, *(make_fact(scope, text, **fields) for text in texts))
    consolidate(town, scopes[0], "Anna is busy.", expected_version=0)
    raw = io.BytesIO()
    report = write_for(town, raw, system, ExportRequest(), clock=lambda: NOW)
    text = raw.getvalue().decode()
    assert report.counts["fact"] == 3
    if system is System.MARKDOWN:
        assert text == (
            "# eve (agent, eve)\n\n- Cats purr.\n\n"
            "# anna (user, eve)\n\nAnna is busy.\n\n- Anna bakes on Sundays.\n- Anna rows.\n"
        )
        return
    lost = {} if system is System.MEM0 else {"tags, metadata and expiry times": 3}
    assert report.left_out == {"texts": 1, **lost}
    other = open_store("sqlite")
    other.host.add_agent(make_agent("eve"))
    other.host.add_user(make_user("anna"))
    taken = take(other, text, user="anna")
    assert taken.facts.counts == {"fact": {"added": 3}}
    if system is System.MEM0:
        assert sorted(fact.content for fact in facts_of(other)) == sorted(said[scopes[0]])
        assert [fact.content for fact in facts_of(other, None)] == said[scopes[1]]
        for fact in facts_of(other):
            assert (fact.tags, fact.metadata) == (fields["tags"], fields["metadata"])
            assert fact.expires_at == fields["expires_at"]


@pytest.mark.parametrize("text", ["[" * 50_000, "<!--" * 30_000, "![](" * 30_000, "[[a|" * 30_000])
def test_marks_of_a_note_take_linear_time(text: str) -> None:
    """Quadratic patterns would not finish."""
    assert [
        each.text for each in statements(f"{text} Bees <!-- no --> sleep. %% draft %%", Counter())
    ]


def test_marks_of_a_note_are_left_out() -> None:
    marked = "Bees <!-- no --> sleep in [Porto](http://x), [[Lisbon|there]] **now**.%% x %% ![a](b)"
    (found,) = statements(marked, Counter())
    assert found.text == "Bees sleep in Porto, there now."
