"""`import` on a real store."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.reports import ImportReport
from edenmem.engine.sessions.format import BadLine, parse
from edenmem.engine.sessions.importer import import_sessions
from edenmem.errors import InputError, NotFoundError
from edenmem.models.host import Message, Session, ToolCall
from edenmem.models.ids import derived_id, utc_now
from edenmem.store.protocol.store import Store
from tests.support.builders import NOW, FixedClock, make_actor, make_agent, make_user, some
from tests.support.runtime import make_runtime

AGENT = make_agent("eden", name="Eden")
OTHER = make_agent("abraham")
ANNA = make_user("anna")
BEN = make_user("ben")


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    for agent in (AGENT, OTHER):
        sqlite_store.host.add_agent(agent)
    for user in (ANNA, BEN):
        sqlite_store.host.add_user(user)
    return sqlite_store


def take(store: Store, lines: Any, *, clock: Any = utc_now, **options: Any) -> ImportReport:
    return import_sessions(make_runtime(store, clock=clock), lines, **options)


def message(content: str = "Hello.", role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **fields}


def line(*messages: dict[str, Any], **fields: Any) -> bytes:
    defaults: dict[str, Any] = {"session": "lunch", "agent": "eden", "users": ["anna"]}
    return json.dumps({**defaults, "messages": list(messages), **fields}).encode() + b"\n"


def nested(levels: int) -> Any:
    """Return nested lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def session(store: Store, name: str = "lunch") -> Session:
    return some(store.host.session(derived_id("session", name)))


def messages(store: Store, name: str = "lunch") -> list[Message]:
    return list(store.host.messages(derived_id("session", name)))


class TestWhatIsStored:
    def test_the_documented_session(self, store: Store) -> None:
        data = line(
            message("I moved to Lisbon.", name="anna", created_at="2026-03-01T10:00:00Z"),
            message(
                "Noted.",
                "assistant",
                name="Eden",
                created_at="2026-03-01T11:00:05+01:00",
                tool_calls=[{"tool": "map", "args": {"q": "Lisbon"}, "status": "done"}],
            ),
            title="Moving",
            group="g-1",
        )
        report = take(store, [data])
        assert (report.sessions, report.new_sessions) == (1, 1)
        assert (report.messages, report.new_messages) == (2, 2)
        stored = session(store)
        assert (stored.name, stored.title, stored.group_id) == ("lunch", "Moving", "g-1")
        assert (stored.agents, stored.users) == ((AGENT.id,), (ANNA.id,))
        first, second = messages(store)
        assert first.created_at == datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
        assert second.created_at == datetime(2026, 3, 1, 10, 0, 5, tzinfo=UTC)
        assert (first.sender, second.sender) == (ANNA.id, AGENT.id)
        (call,) = second.tool_calls
        assert (call.tool, call.args, call.status) == ("map", {"q": "Lisbon"}, "completed")
        assert call.id

    def test_openai_style_messages(self, store: Store, clock: FixedClock) -> None:
        data = line(
            message("Be brief.", "developer"),
            message([{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"}]),  # type: ignore[arg-type]
            {
                "role": "assistant",
                "content": None,
                "refusal": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"at": 3}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a cat"},
        )
        take(store, [data], clock=clock)
        stored = messages(store)
        assert [m.role for m in stored] == ["system", "user", "assistant", "tool"]
        assert stored[1].content == "What is\nthis?"
        assert stored[2].tool_calls == (ToolCall(id="call_1", tool="look", args={"at": 3}),)
        assert all(m.created_at <= NOW for m in stored)
        assert all(a.created_at < b.created_at for a, b in itertools.pairwise(stored))

    def test_a_session_by_its_id_and_several_agents(self, store: Store) -> None:
        id = "a1" * 12
        data = line(message(), session=id, agent=None, agents=["abraham", AGENT.id])
        take(store, [data])
        stored = some(store.host.session(id))
        assert stored.agents == (OTHER.id, AGENT.id)
        assert stored.name is None

    def test_incognito_is_kept(self, store: Store) -> None:
        take(store, [line(message(), incognito=True)])
        assert session(store).incognito

    def test_names_match_in_any_case(self, store: Store) -> None:
        take(store, [line(message(name="ANNA"), agent="Eden", users=["Anna"])])
        assert messages(store)[0].sender == ANNA.id

    def test_invalid_characters_are_removed(self, store: Store) -> None:
        data = line(message("a\x00b\x1b]0;x\x07c \U0001f600"), title="t\x00")
        data += line(message("cut \ud83d short"), session="two")
        take(store, io.BytesIO(data))
        assert messages(store)[0].content == "ab]0;xc \U0001f600"
        assert "\ud83d" not in messages(store, "two")[0].content

    def test_known_failure_39_a_time_without_a_zone_is_utc(self, store: Store) -> None:
        """Known failure 39: times with and without zone were mixed."""
        take(
            store,
            [
                line(
                    message("one", created_at="2026-03-01T10:00:00"),
                    message("two", created_at="2026-03-01T12:00:01+02:00"),
                    message("three", created_at="2026-03-01"),
                )
            ],
        )
        assert [(m.content, m.created_at.isoformat()) for m in messages(store)] == [
            ("three", "2026-03-01T00:00:00+00:00"),
            ("one", "2026-03-01T10:00:00+00:00"),
            ("two", "2026-03-01T10:00:01+00:00"),
        ]

    def test_messages_of_the_same_second_keep_their_order(self, store: Store) -> None:
        texts = [f"message {number}" for number in range(30)]
        take(store, [line(*(message(text, created_at="2026-03-01T10:00:00Z") for text in texts))])
        assert [m.content for m in messages(store)] == texts

    def test_messages_without_times_are_placed_between_others(self, store: Store) -> None:
        at = "2026-03-01T10:00:00Z"
        take(store, [line(message("a"), message("b"), message("c", created_at=at), message("d"))])
        stored = messages(store)
        assert [m.content for m in stored] == ["a", "b", "c", "d"]
        assert stored[2].created_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
        assert stored[0].created_at == stored[2].created_at - timedelta(seconds=2)


class TestWhoSpoke:
    def test_a_known_speaker_joins_the_session(self, store: Store) -> None:
        """Known failure 8: group chats and authors were determined from different lists."""
        take(store, [line(message("a", name="anna"), message("b", name="ben"))])
        assert session(store).users == (ANNA.id, BEN.id)
        assert [m.sender for m in messages(store)] == [ANNA.id, BEN.id]

    def test_unknown_names_in_a_session_of_one_user_are_rejected(self, store: Store) -> None:
        """Known failure 8: facts went to the wrong person."""
        data = line(message("a", name="anna"), message("b", name="Zoe"))
        with pytest.raises(InputError, match=r"messages\[1\].name: 'Zoe'") as caught:
            take(store, [data])
        assert caught.value.line == 1

    def test_a_single_display_name_is_the_only_user(self, store: Store) -> None:
        take(store, [line(message("a", name="Anna Silva"), message("b"))])
        stored = messages(store)
        assert [m.sender for m in stored] == [ANNA.id, ANNA.id]
        assert stored[0].name == "Anna Silva"

    def test_display_names_in_a_group_have_no_account(self, store: Store) -> None:
        data = line(message("a", name="A."), message("b", name="ben"), users=["anna", "ben"])
        take(store, [data])
        assert [m.sender for m in messages(store)] == [None, BEN.id]

    def test_assistant_messages_belong_to_their_agent(self, store: Store) -> None:
        data = line(
            message("a", "assistant", name="Abraham"),
            message("b", "assistant"),
            agents=["abraham"],
        )
        take(store, [data])
        assert [m.sender for m in messages(store)] == [OTHER.id, None]


class TestAgain:
    @pytest.mark.parametrize("times", [True, False])
    def test_nothing_is_added_twice(self, store: Store, clock: FixedClock, times: bool) -> None:
        at = {"created_at": "2026-03-01T10:00:00Z"} if times else {}
        data = line(message("ok", **at), message("ok", **at), message("no", "assistant", **at))
        first = take(store, [data], clock=clock)
        before = messages(store)
        clock.advance(days=3)
        again = take(store, [data], clock=clock)
        assert (first.new_sessions, first.new_messages) == (1, 3)
        assert (again.new_sessions, again.new_messages) == (0, 0)
        assert messages(store) == before

    @pytest.mark.parametrize("times", [True, False])
    def test_known_failure_9_a_grown_file_adds_new_messages(
        self, store: Store, clock: FixedClock, times: bool
    ) -> None:
        """Known failure 9: one duplicate dropped everything after it."""

        def at(minute: int) -> dict[str, str]:
            return {"created_at": f"2026-03-01T10:{minute:02}:00Z"} if times else {}

        old = [message("ok", **at(0)), message("fine", "assistant", **at(1))]
        new = [message("ok", **at(2)), message("bye", "assistant", **at(3))]
        take(store, [line(*old)], clock=clock)
        clock.advance(hours=1)
        report = take(store, [line(*old, *new)], clock=clock)
        assert report.new_messages == 2
        assert [m.content for m in messages(store)] == ["ok", "fine", "ok", "bye"]

    def test_inserted_messages_keep_their_place(self, store: Store, clock: FixedClock) -> None:
        take(store, [line(message("a"), message("c"))], clock=clock)
        report = take(store, [line(message("a"), message("b"), message("c"))])
        assert report.new_messages == 1
        assert [m.content for m in messages(store)] == ["a", "b", "c"]

    def test_users_are_added_but_never_removed(self, store: Store) -> None:
        take(store, [line(message("a"))])
        take(store, [line(message("a"), users=["ben"], agents=["abraham"])])
        assert set(session(store).users) == {ANNA.id, BEN.id}
        assert set(session(store).agents) == {AGENT.id, OTHER.id}

    def test_a_private_session_does_not_become_public(self, store: Store) -> None:
        take(store, [line(message("a"), incognito=True)])
        with pytest.raises(InputError, match="incognito"):
            take(store, [line(message("a"), message("b"))])
        assert len(messages(store)) == 1

    def test_a_line_contradicting_an_earlier_one_is_reported(self, store: Store) -> None:
        data = [line(message("a")), line(message("b"), incognito=True)]
        report = take(store, data, skip_bad=True)
        assert [number for number, _ in report.problems] == [2]
        with pytest.raises(InputError, match="line 2: incognito"):
            take(store, data)


GOOD = line(message("good"))


class TestWhoSpokeLater:
    """Known failure 8: the words of one user became another's memory."""

    @pytest.mark.parametrize("users", [["anna"], []])
    def test_a_later_unknown_name_is_not_the_only_user(
        self, store: Store, users: list[str]
    ) -> None:
        take(store, [line(message("I live in Lisbon.", name="anna"))])
        later = line(message("I live in Rome.", name="Bob"), users=users)
        with pytest.raises(InputError, match="'Bob' is not among the session's users"):
            take(store, [later])
        assert [each.content for each in messages(store)] == ["I live in Lisbon."]

    def test_a_display_name_may_be_imported_again(self, store: Store) -> None:
        talk = [message("I live in Lisbon.", name="Anna D.")]
        take(store, [line(*talk)])
        report = take(store, [line(*talk, message("I moved.", name="Anna D."))])
        assert report.new_messages == 1
        assert {each.sender for each in messages(store)} == {ANNA.id}

    def test_a_line_without_users_uses_the_stored_ones(self, store: Store) -> None:
        take(store, [line(message("I live in Lisbon."))])
        take(store, [line(message("I moved."), users=[])])
        assert {each.sender for each in messages(store)} == {ANNA.id}


class TestBadLines:
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            (b"{", "the line is not valid JSON (it ends early)"),
            (b'{"session": "a"', "not valid JSON"),
            (b"\xff\xfe", "not valid UTF-8"),
            (b"[1, 2]", "JSON object"),
            (b'"text"', "JSON object"),
            (b"[" * 100_000, "nested too deeply"),
            (b'{"n": ' + b"1" * 5000 + b"}", "not valid JSON"),
            (line(message(tool_calls=[{"tool": "t", "args": nested(900)}])), "args is nested more"),
            (line(message(tool_calls=[{"tool": "t", "result": nested(65)}])), "result is nested"),
            (
                line(
                    message(
                        tool_calls=[{"function": {"name": "t", "arguments": "[" * 65 + "]" * 65}}]
                    )
                ),
                "args is nested more than 64 levels",
            ),
            (b"{}", "session"),
            (line(agent=None), "agent is missing"),
            (line(session=""), "session must not be empty"),
            (line(session="\x00"), "blank"),
            (line(session=7), "session must be text"),
            (line(users="anna"), "users must be a list"),
            (line(users=[3]), "users[0] must be text"),
            (line(incognito="yes"), "incognito must be true or false"),
            (line(incognto=True), "incognto is not a known field; known fields: session, "),
            (line(messages={}), "messages must be a list"),
            (line({"content": "x"}), "messages[0].role is missing"),
            (line(message(role="robot")), "messages[0].role must be one of user, "),
            (line(message(), {"role": "user"}), "messages[1].content is missing"),
            (line(message(5)), "messages[0].content must be text or a list"),  # type: ignore[arg-type]
            (line(message([5])), "messages[0].content[0]"),  # type: ignore[arg-type]
            (line(message([{"type": "text"}])), "messages[0].content[0].text"),  # type: ignore[arg-type]
            (line(message(created_at="yesterday")), "messages[0].created_at must be a time"),
            (line(message(created_at="2026-02-30")), "messages[0].created_at"),
            (line(message(created_at=1e300)), "messages[0].created_at must be a time"),
            (line(message(created_at="0001-01-01T00:00:00+23:00")), "messages[0].created_at"),
            (line(message(tool_calls=[{"args": 1}])), "messages[0].tool_calls[0].tool is missing"),
        ],
    )
    def test_the_line_number_is_reported_and_nothing_is_imported(
        self, store: Store, data: bytes, expected: str
    ) -> None:
        with pytest.raises(InputError) as caught:
            take(store, [GOOD, b"\n", data])
        assert caught.value.message.startswith("line 3: ")
        assert expected in caught.value.message
        assert caught.value.line == 3
        assert "--skip-bad" in (caught.value.hint or "")
        assert not list(store.host.sessions())

    def test_good_lines_are_imported_with_skip_bad(self, store: Store) -> None:
        data = [b"{", GOOD, line(message(role="robot")), line(message(), session="two")]
        report = take(store, data, skip_bad=True)
        assert report.new_sessions == 2
        assert [number for number, _ in report.problems] == [1, 3]

    def test_several_bad_lines_are_reported_together(self, store: Store) -> None:
        with pytest.raises(InputError) as caught:
            take(store, [b"{", GOOD, b"["] + [b"{"] * 9)
        assert "\n  line 3: the line is not valid JSON" in caught.value.message
        assert "and 3 more" in caught.value.message

    def test_an_empty_file_is_valid(self, store: Store) -> None:
        assert take(store, io.BytesIO(b"")).sessions == 0
        assert take(store, io.BytesIO(b"\n \n")).sessions == 0

    def test_a_byte_order_mark_and_windows_line_ends_are_accepted(self, store: Store) -> None:
        data = b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n") + b"\r\n"
        assert take(store, io.BytesIO(data)).new_sessions == 1

    def test_an_overlong_line_is_reported(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("edenmem.engine.sessions.importer.LINE_BYTES", 2000)
        data = GOOD + line(message("x" * 5000), session="two") + line(message(), session="three")
        with pytest.raises(InputError, match=r"line 2: the line is longer than 2,000 bytes"):
            take(store, io.BytesIO(data))
        report = take(store, io.BytesIO(data), skip_bad=True)
        assert report.new_sessions == 2
        assert [number for number, _ in report.problems] == [2]

    @given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
    def test_any_line_parses_or_raises_bad_line(self, data: bytes) -> None:
        with pytest.raises(BadLine):
            parse(data)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
            lambda inner: (
                st.lists(inner, max_size=4)
                | st.dictionaries(
                    st.sampled_from(
                        ["role", "content", "name", "created_at", "tool_calls", "type"]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    def test_any_messages_parse_or_raise_bad_line(self, value: object) -> None:
        data = json.dumps({"session": "s", "agent": "a", "messages": [value]}).encode()
        with contextlib.suppress(BadLine):
            assert len(parse(data).messages) == 1


class TestUnknownNames:
    def test_unknown_names_are_rejected_with_commands(self, store: Store) -> None:
        data = [line(message(), agent="nova"), line(message(), users=["anna", "Zoe B"])]
        with pytest.raises(NotFoundError, match="agent 'nova', user 'Zoe B'") as caught:
            take(store, data)
        hint = caught.value.hint or ""
        assert "edenmem agent add nova" in hint
        assert "edenmem user add 'Zoe B'" in hint
        assert "--add-missing" in hint
        assert not list(store.host.sessions())

    def test_unknown_names_are_added_with_the_option(self, store: Store) -> None:
        id = "b2" * 12
        data = line(message(name="zoe"), agent="nova", users=["zoe", id])
        report = take(store, [data], add_missing=True)
        assert report.agents_added == ("nova",)
        assert report.users_added == ("zoe", id)
        stored = session(store)
        zoe = some(store.host.user(stored.users[0]))
        assert zoe.username == "zoe"
        assert stored.users[1] == id
        assert messages(store)[0].sender == zoe.id
        again = take(store, [data], add_missing=True)
        assert (again.agents_added, again.users_added) == ((), ())

    def test_skipped_lines_add_no_accounts(self, store: Store) -> None:
        bad = line(message(name="a"), message(name="b"), agent="nova", users=["zoe"])
        report = take(store, [bad, GOOD], add_missing=True, skip_bad=True)
        assert [number for number, _ in report.problems] == [1]
        assert (report.agents_added, report.users_added) == ((), ())

    def test_lines_with_unknown_names_can_be_skipped(self, store: Store) -> None:
        data = [line(message(), agent="nova"), line(message(), session="two")]
        report = take(store, data, skip_bad=True)
        assert report.new_sessions == 1
        assert "edenmem agent add nova" in report.problems[0][1]

    def test_an_id_prefix_is_not_accepted_in_a_file(self, store: Store) -> None:
        with pytest.raises(NotFoundError):
            take(store, [line(message(), users=[ANNA.id[:10]])])


class TestDryRun:
    def test_counts_and_writes_nothing(self, store: Store) -> None:
        take(store, [line(message("a"))])
        data = [line(message("a"), message("b")), line(message("c"), session="two", agent="nova")]
        report = take(store, data, dry_run=True, add_missing=True)
        assert (report.sessions, report.new_sessions) == (2, 1)
        assert (report.messages, report.new_messages) == (3, 2)
        assert report.agents_added == ("nova",)
        assert len(list(store.host.sessions())) == 1
        assert len(messages(store)) == 1
        assert not [agent for agent in store.host.agents() if agent.username == "nova"]


class TestReading:
    def test_a_text_file_is_read_from_its_position(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "sessions.jsonl"
        path.write_bytes(line(message(), session="skipped") + GOOD)
        with path.open(encoding="utf-8") as file:
            file.readline()
            assert take(store, file).new_sessions == 1
        with path.open("rb") as file:
            assert take(store, file).new_sessions == 1

    @pytest.mark.slow
    def test_memory_does_not_grow_with_the_file(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("edenmem.engine.sessions.format._SPOOL_BYTES", 100_000)
        text = "x" * 1000

        def lines(count: int) -> Iterator[bytes]:
            for number in range(count):
                yield line(*(message(text) for _ in range(50)), session=f"s{number}")

        def peak(count: int) -> int:
            tracemalloc.start()
            take(store, lines(count), dry_run=True)
            (_, most) = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            return most

        peak(5)
        assert peak(70) < peak(20) + 1_250_000  # the files differ by 2.5 MB


def test_added_accounts_have_audit_entries(store: Store) -> None:
    actor = make_actor("import", run_id=derived_id("run"))
    report = import_sessions(
        make_runtime(store, actor=actor),
        [line(message(), agent="nora", users=["zoe"])],
        add_missing=True,
    )
    assert (report.agents_added, report.users_added) == (("nora",), ("zoe",))
    entries = list(store.log.audit(run_id=derived_id("run")))
    assert {entry.action for entry in entries} == {"add_agent", "add_user"}
    assert {entry.actor.command for entry in entries} == {"import"}


def test_an_owner_exists_or_is_added_by_the_lines(store: Store) -> None:
    new = [line(message(), agent="mira", users=["lena"])]
    with pytest.raises(NotFoundError, match="unknown user: 'nobody'"):
        take(store, new, add_missing=True, owner="nobody")
    assert {user.username for user in store.host.users()} == {"anna", "ben"}
    named = take(store, new, add_missing=True, owner="lena")
    assert (named.users_added, named.owners_kept) == (("lena",), 0)
    (mira,) = (agent for agent in store.host.agents() if agent.username == "mira")
    assert (mira.name, mira.owner) == ("mira", derived_id("user", "lena"))
    again = take(store, new, owner="ben")
    assert (again.new_sessions, again.owners_kept) == (0, 1)
    assert session(store).owner == mira.owner
