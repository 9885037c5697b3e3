import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edenmem.engine.formation.quotas import item_limit
from edenmem.engine.formation.sharing import Measure, is_due, measure
from edenmem.models.formation import Trigger
from edenmem.models.host import ToolCall
from edenmem.settings.schema import FormationSettings
from tests.support.builders import make_agent, make_message, make_session

SETTINGS = FormationSettings()
AGENT = make_agent("mira")
SESSION = make_session([AGENT])


@pytest.mark.parametrize(
    ("characters", "expected"),
    [(0, 500), (1, 500), (1500, 500), (3000, 1000), (6000, 1500), (12_000, 2000), (10**9, 2000)],
)
def test_items_grow_with_the_logarithm_of_the_length(characters: int, expected: int) -> None:
    assert item_limit(1000, characters, SETTINGS) == expected


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_a_longer_conversation_never_gives_fewer_items(one: int, other: int) -> None:
    short, long = sorted((one, other))
    assert 1 <= item_limit(6, short, SETTINGS) <= item_limit(6, long, SETTINGS) <= 12


def test_there_is_always_room_for_one_item() -> None:
    assert item_limit(1, 10, SETTINGS) == 1


def test_words_weigh_by_who_says_them() -> None:
    text = "x" * 450  # a hundred tokens
    other = make_agent("vela")

    def tokens(**fields: object) -> float:
        message = make_message(SESSION, text, **fields)
        return measure([message], AGENT.id, SETTINGS).tokens

    assert tokens(role="user") == pytest.approx(100)
    assert tokens(role="tool") == pytest.approx(50)
    assert tokens(role="assistant") == pytest.approx(20)
    assert tokens(role="assistant", sender=AGENT.id) == pytest.approx(20)
    assert tokens(role="assistant", sender=other.id) == pytest.approx(50)


def test_all_that_a_person_says_weighs_and_of_a_tool_what_is_shown() -> None:
    """Known failure 102: the middle of a long message was cut and did not count."""
    call = ToolCall(tool="draw", result="x" * 10**6)
    message = make_message(SESSION, "y" * 10**6, role="user", tool_calls=(call,))
    shown = 10**6 + SETTINGS.weight_tool * SETTINGS.tool_characters
    size = measure([message], AGENT.id, SETTINGS)
    assert size == Measure(1, shown / SETTINGS.characters_per_token, 1)


@pytest.mark.parametrize("role", ["system", "eden"])
def test_what_the_platform_wrote_is_neither_read_nor_counted(role: str) -> None:
    message = make_message(SESSION, "x" * 100_000, role=role)
    assert not message.is_readable
    assert measure([message], AGENT.id, SETTINGS) == Measure(0, 0.0)
    assert not make_message(SESSION, "Good morning, agent.", trigger=True).is_readable
    assert not make_message(SESSION, " \n").is_readable


@pytest.mark.parametrize(
    ("trigger", "messages", "tokens", "due"),
    [
        (Trigger.THRESHOLD, 45, 0.0, True),
        (Trigger.THRESHOLD, 44, 1499.9, False),
        (Trigger.THRESHOLD, 1, 1500.0, True),
        (Trigger.COLD, 1, 1500.0, True),
    ],
)
def test_when_a_conversation_is_due(
    trigger: Trigger, messages: int, tokens: float, due: bool
) -> None:
    assert is_due(Measure(messages, tokens), trigger, SETTINGS) is due


@pytest.mark.parametrize("trigger", [Trigger.SESSION_END, Trigger.COLD])
def test_what_a_person_says_once_in_a_short_chat_is_remembered(trigger: Trigger) -> None:
    hello = make_message(SESSION, "Hello!", role="user")
    reply = make_message(SESSION, "Hello Ada, how are you?", role="assistant")
    bees = make_message(SESSION, "I keep bees in Porto.", role="user")
    size = measure([hello, reply, bees], AGENT.id, SETTINGS)
    assert (size.messages, size.has_statement) == (3, True)
    assert is_due(size, trigger, SETTINGS)
    assert not is_due(size, Trigger.THRESHOLD, SETTINGS)
    assert not is_due(measure([hello, reply], AGENT.id, SETTINGS), trigger, SETTINGS)
    platform = FormationSettings(min_messages=4)
    assert not is_due(size, trigger, platform)


def test_an_interval_below_the_minimum_does_not_undercut_it() -> None:
    settings = FormationSettings(message_interval=2, min_messages=4)
    assert not is_due(Measure(3, 0.0), Trigger.THRESHOLD, settings)
    assert is_due(Measure(4, 0.0), Trigger.THRESHOLD, settings)


def test_the_base_of_the_logarithm_is_a_setting() -> None:
    settings = FormationSettings(log_base=math.e)
    assert item_limit(1000, 3000 * 2, settings) == round(1000 * (1 + math.log(2)))
