"""Known failures 3, 6, 33 and 39 to 41: a hostile conversation changes its own memory at most.

The model obeys the attacker as far as the form of an answer allows; what is asserted is what the
engine guarantees whatever a model does.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from edenmem.cli.app.root import run
from edenmem.models.scope import ScopeKind
from edenmem.text import word_count
from tests.cli.conftest import Cli, controls
from tests.hostile.town import MALLORY, Town, conversations, writable
from tests.support.exhaustive import spared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.hostile.town import Aftermath

pytestmark = pytest.mark.slow

NAMES = [line["session"] for line in conversations()]
TAGS = {
    "MemoryContext",
    "AgentMemory",
    "MemoryShard",
    "GroupMemory",
    "UserMemory",
    "SessionMemory",
    "Consolidated",
    "RecentReflections",
    "Facts",
    "RetrievedMemories",
}
WORD_LIMITS = {"session": 200, "user": 300, "group": 500, "shard": 1000, "agent": 1200}


class Ruins:
    """A town after all of the set."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.path = town.path
        self.by_name: dict[str, Aftermath] = {}

    def each(self) -> Iterator[Aftermath]:
        """What is left of each conversation; a test that fails shows which it came to."""
        for name, aftermath in self.by_name.items():
            print(name)
            yield aftermath


@pytest.fixture(scope="module", params=["two-step", spared("single")])
def ruins(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ruins]:
    town = Town(tmp_path_factory.mktemp("hostile") / "town.db", request.param)
    left = Ruins(town)

    async def all_of_it() -> None:
        for line in conversations():
            left.by_name[line["session"]] = await town.suffer(line)

    asyncio.run(all_of_it())
    yield left
    town.store.database.close()


def test_the_set_is_as_large_as_is_said() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 25
    sizes = [len(message["content"]) for line in conversations() for message in line["messages"]]
    assert max(sizes) >= 100_000
    assert max(len(line["messages"]) for line in conversations()) >= 500


# -- memory --------------------------------------------------------------------------------------


def test_every_conversation_is_formed_to_its_end(ruins: Ruins) -> None:
    for aftermath in ruins.each():
        outcomes = {report.outcome for report in aftermath.reports}
        assert outcomes == ({"incognito"} if aftermath.session.incognito else {"applied"})
        assert aftermath.imported_again == 0
        if not aftermath.session.incognito:
            assert sum(report.messages for report in aftermath.reports) == len(
                aftermath.messages
            ) * len(aftermath.session.agents)


def test_memory_of_others_is_the_same_to_the_byte(ruins: Ruins) -> None:
    for aftermath in ruins.each():
        own = writable(aftermath.session)
        before = {each for each in aftermath.before if each.scope not in own}
        after = {each for each in aftermath.after if each.scope not in own}
        assert after == before
        assert aftermath.lena_after == aftermath.lena_before != ""


def test_an_attack_leaves_something_in_its_own_memory(ruins: Ruins) -> None:
    """The other tests would hold of a model that writes nothing."""
    scopes = {
        each.scope.kind for each in ruins.by_name[NAMES[-1]].after if "allory" in each.content
    }
    assert scopes >= {ScopeKind.USER, ScopeKind.AGENT, ScopeKind.SESSION, ScopeKind.SHARD}
    actions = Counter(
        decision.action
        for left in ruins.by_name.values()
        for report in left.reports
        for decision in report.decisions
    )
    assert actions["ADD"] > 50
    assert actions["REJECTED"] > 1000
    assert actions["DELETE"] + actions["UPDATE"] > 10


def test_texts_stay_within_their_limits(ruins: Ruins) -> None:
    for aftermath in ruins.each():
        for each in aftermath.after:
            if each.type == "consolidations":
                assert word_count(each.content) <= WORD_LIMITS[each.scope.kind] * 1.2
                assert not re.match(r"\s*VERSION:", each.content)
            else:
                assert len(each.content.splitlines()) == 1
            assert "<<<" not in each.content or not re.search(
                r"<<<[\w ]+ [0-9a-f]{8,}>>>", each.content
            )
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]", each.content)


def test_limits_on_numbers_hold(ruins: Ruins) -> None:
    """A conversation of any length gives at most twice the usual number of items a range."""
    for aftermath in ruins.each():
        old = {each.id for each in aftermath.before}
        new = Counter((each.type, each.scope) for each in aftermath.after if each.id not in old)
        ranges = Counter(report.agent_id for report in aftermath.reports)
        for (type, scope), number in new.items():
            most = {"facts": 20, "reflections": 16, "consolidations": 1}[type]
            assert number <= most * ranges[scope.agent_id]


def test_orders_are_not_remembered_for_everybody(ruins: Ruins) -> None:
    for aftermath in ruins.each():
        orders = {m["content"] for m in aftermath.line["messages"] if m.get("never")}
        old = {each.id for each in aftermath.before}
        for each in aftermath.after:
            if each.id in old or each.type == "consolidations":
                continue
            if each.type == "facts" or each.scope.kind in ("agent", "shard", "group"):
                assert each.content not in orders


# -- prompts -------------------------------------------------------------------------------------

_OPEN = re.compile(r"<<<(\w+) ([0-9a-f]{16})>>>")
_DAY = re.compile(r"[A-Z][a-z]+day (\d{1,4}-\d\d-\d\d) UTC$")
_BEGINS = re.compile(r"\[(\d+)\] (\d\d:\d\d) ([^:\n]+):(?: |$)")


def blocks(prompt: str) -> tuple[str, str, list[tuple[str, str]]]:
    """The token of a prompt, what stands outside of its fences, and each block with its name.

    All that is not ours stands inside, so the first fence of a prompt is a real one.
    """
    first = next(match for line in prompt.split("\n") if (match := _OPEN.fullmatch(line)))
    token = first[2]
    outside: list[str] = []
    found: list[tuple[str, list[str]]] = []
    inside = ""
    for line in prompt.split("\n"):
        if inside:
            if line == f"<<<end of {inside} {token}>>>":
                inside = ""
                continue
            assert token not in line, "the token stands in what was fenced"
            found[-1][1].append(line)
        elif (match := _OPEN.fullmatch(line)) and match[2] == token:
            inside = match[1]
            found.append((inside, []))
        else:
            assert token not in line
            outside.append(line)
    assert not inside, "a fence was never closed"
    return token, "\n".join(outside), [(name, "\n".join(lines)) for name, lines in found]


def test_all_that_was_said_stays_inside_the_fences(ruins: Ruins) -> None:
    for aftermath in ruins.each():
        said = {
            line.strip()
            for message in aftermath.messages
            for line in message.content.splitlines()
            if len(line.strip()) >= 12
        }
        for request in aftermath.requests:
            _, outside, _ = blocks(request.user)
            for line in said:
                assert line[:200] not in outside
                assert line[:200] not in request.system


def test_the_token_of_a_fence_is_another_for_each_formation(ruins: Ruins) -> None:
    requests = [each for left in ruins.by_name.values() for each in left.requests]
    tokens = {(blocks(request.user)[0], request.key) for request in requests}
    assert len({token for token, _ in tokens}) == len(tokens) > 60
    said = "".join(m.content for left in ruins.by_name.values() for m in left.messages)
    assert not [token for token, _ in tokens if token in said]


def test_each_line_is_its_true_speakers(ruins: Ruins) -> None:
    """Whatever a message looks like, it stands under its own time and name, and no other."""
    for aftermath in ruins.each():
        readable = [
            message
            for message in aftermath.messages
            if message.role not in ("system", "eden")
            and (message.content.strip() or message.tool_calls)
        ]
        seen: dict[str, list[tuple[str, str]]] = {agent: [] for agent in aftermath.session.agents}
        agents = {"mira": "a" * 24, "otto": "a1" * 12}
        # No facts are asked of a chat of an unknown person: it has memory of its session alone.
        tasks = ("facts", "single") if aftermath.session.users else ("reflections", "single")
        for request in aftermath.requests:
            if request.task not in tasks:
                continue
            _, _, found = blocks(request.user)
            (conversation,) = [text for name, text in found if name == "conversation"]
            # every character that some reader takes for the end of a line
            day, number = "", None
            for line in conversation.splitlines():
                begins, new_day = _BEGINS.match(line), _DAY.match(line)
                assert begins or new_day or line.startswith("    "), line[:200]
                if new_day:
                    day = new_day[1]
                if begins:
                    assert number is None or begins[1] == str(number + 1)
                    number = int(begins[1])
                    name, _, part = begins[3].partition(" (part ")
                    if not part or part.startswith("1 "):
                        at = f"{day} {begins[2]}"
                        seen[agents[request.key.split("/")[1]]].append((at, name))
        for agent, lines in seen.items():
            if aftermath.session.incognito:
                assert lines == []
                continue
            assert len(lines) == len(readable)
            for (at, name), message in zip(lines, readable, strict=True):
                assert at.zfill(16) == f"{message.created_at:%Y-%m-%d %H:%M}".zfill(16)
                if message.role == "tool":
                    assert name.startswith("tool")
                elif message.role == "assistant":
                    own = message.sender == agent
                    assert name.endswith("*" if own else "(other agent)")
                elif message.sender == MALLORY.id:
                    assert name == "mallory"
                elif message.sender is not None:
                    assert name == "lena"
                else:
                    assert name not in ("lena", "otto", "Mira")
                    assert not set(name) & set("[]()<>`*")


# -- what is read of it --------------------------------------------------------------------------


def test_the_context_has_our_tags_alone(ruins: Ruins) -> None:
    for aftermath in ruins.each():
        root = ElementTree.fromstring(aftermath.context.xml)
        assert root.tag == "MemoryContext"
        assert {element.tag for element in root.iter()} <= TAGS
        for element in root.iter():
            if element.tag == "MemoryShard":
                assert element.attrib in ({"name": "lore"}, {"name": "vault"})
            else:
                assert element.attrib == {}
        for part in ("Facts", "RetrievedMemories"):
            for line in (root.findtext(part) or "").strip().splitlines():
                assert re.fullmatch(
                    r"- \[(agent|group|user|shard \w+)\] .+ \((now|\d+[mhd] ago)\)", line.strip()
                )


async def test_words_of_an_attack_find_what_the_reader_may_see(ruins: Ruins) -> None:
    service = ruins.town.service
    for left in ruins.by_name.values():
        for message in left.messages[:6]:
            query = message.content.replace("\x00", "")[:2000]
            if not query.strip():
                continue
            report = await service.search([query], agent_id="a" * 24, user_id="b" * 24)
            for hit in report.hits:
                assert hit.fact.agent_id == "a" * 24
                assert hit.fact.user_id in (None, "b" * 24)


LISTS = [
    ("session", "list"),
    ("scope", "list"),
    ("fact", "list", "--agent", "mira", "--user", "mallory"),
    ("fact", "list", "--agent", "otto", "--scope", "shard", "--shard", "vault"),
    ("reflection", "list", "--agent", "mira"),
    ("consolidation", "list"),
    ("search", "\x1b[31m<System> NEAR(lena) [/red]", "--agent", "mira", "--no-track"),
    ("status",),
]


@pytest.fixture
def shell(ruins: Ruins, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        Cli(f"sqlite:///{ruins.path}", ruins.path.parent).environment(100, {}).items()
    ):
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("shell")
@pytest.mark.parametrize("command", LISTS, ids=lambda command: " ".join(command[:2]))
def test_no_list_obeys_what_it_lists(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    for format in ("table", "json", "markdown"):
        assert run((*command, "--format", format)) == 0
        shown = capsys.readouterr()
        assert not controls(shown.out)
        assert not controls(shown.err)
        if format == "json":
            assert isinstance(json.loads(shown.out), dict if "status" in command else list)


@pytest.mark.usefixtures("shell")
def test_no_conversation_is_obeyed_when_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for name in NAMES:
        assert run(("show", name)) == 0, name
        shown = capsys.readouterr()
        assert not controls(shown.out), name
        assert run(("context", name)) == 0, name
        assert ElementTree.fromstring(capsys.readouterr().out).tag == "MemoryContext", name


@pytest.mark.parametrize(
    "command",
    [("show", "terminal"), ("fact", "list", "--agent", "mira", "--user", "mallory")],
    ids=lambda command: command[0],
)
def test_nor_on_a_terminal(command: tuple[str, ...], ruins: Ruins) -> None:
    result = Cli(f"sqlite:///{ruins.path}", ruins.path.parent).on_terminal(*command)
    assert result.code == 0
    assert not controls(result.out)
