"""Validate the labeled items that the acceptance rules are measured on.

Labels say what a careful person keeps or refuses. The rules are fitted to the items whose split is
``dev``, ``holdout`` and ``fresh``. ``unseen`` was written last, without knowledge of the rules; it
was measured once, and read after that. ``blind`` was written later in the same way, by an author
who had read neither the rules nor the other items. The label ``meaning`` marks what contradicts the
conversation in its own words.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.acceptance.labeled import DATA, MEANING, SPLITS, read

RULES = {
    "sources",
    "names",
    "numbers",
    "words",
    "echo",
    "statement",
    "relative_date",
    "secret",
    "order",
    MEANING,
}
FIELDS = {"conversation", "content", "sources", "kind", "shared", "why", "split"}


CONVERSATIONS = {each["id"]: each for each in read("conversations")}
GOOD = read("good")
BAD = read("bad")


def authors(item: dict[str, Any]) -> set[str]:
    messages = CONVERSATIONS[item["conversation"]]["messages"]
    return {each["author"] for each in messages if each["n"] in item["sources"]}


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def is_luhn_valid(digits: str) -> bool:
    doubled = [int(d) * (1 + i % 2) for i, d in enumerate(reversed(digits))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


def is_iban_valid(text: str) -> bool:
    moved = text[4:] + text[:4]
    return int("".join(str(int(c, 36)) for c in moved)) % 97 == 1


def test_conversations_are_complete() -> None:
    assert len(CONVERSATIONS) == len(read("conversations")) >= 70
    for each in CONVERSATIONS.values():
        messages = each["messages"]
        assert 4 <= len(messages) <= 14, each["id"]
        assert [m["n"] for m in messages] == list(range(1, len(messages) + 1))
        assert {m["speaker"] for m in messages if m["author"] == "person"} <= set(each["people"])
        assert {m["speaker"] for m in messages if m["author"] == "agent"} <= {each["agent"]}
        assert {m["author"] for m in messages} <= {"person", "agent", "other agent", "tool"}
        times = [datetime.fromisoformat(m["at"]) for m in messages]
        assert all(t.tzinfo for t in times)
        assert all(a < b for a, b in pairwise(times))
        assert all(m["text"].strip() for m in messages)


def test_all_splits_have_many_languages_and_items() -> None:
    languages = defaultdict(set)
    for each in CONVERSATIONS.values():
        languages[each["split"]].add(each["lang"])
    assert set(languages) == set(SPLITS)
    assert languages["dev"] == languages["holdout"]
    assert min(len(spoken) for spoken in languages.values()) >= 10
    for items in (GOOD, BAD):
        sizes = Counter(item["split"] for item in items)
        assert set(sizes) == set(SPLITS)
        assert min(sizes.values()) >= 170


def test_there_are_enough_items_and_none_twice() -> None:
    assert len(GOOD) >= 550
    assert len(BAD) >= 800
    keys = Counter((item["conversation"], item["content"]) for item in GOOD + BAD)
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("name", ["good", "bad"])
def test_items_fit_their_conversation(name: str) -> None:
    for item in GOOD if name == "good" else BAD:
        assert set(item) - {"rules"} == FIELDS, item
        conversation = CONVERSATIONS[item["conversation"]]
        assert item["split"] == conversation["split"], item
        assert item["content"] == item["content"].strip() != "", item
        assert "\n" not in item["content"], item
        assert item["why"], item
        offered = {each["n"] for each in conversation["messages"]}
        assert item["kind"] in ("fact", "reflection"), item
        assert bool(item["sources"]) == (item["kind"] == "fact"), item
        if "sources" not in item.get("rules", ()):
            assert set(item["sources"]) <= offered, item
            if item["kind"] == "fact":
                assert "person" in authors(item), item


def test_bad_items_name_their_rules() -> None:
    counts = Counter(rule for item in BAD for rule in item["rules"])
    assert set(counts) == RULES
    assert min(counts.values()) >= 25, counts
    for item in BAD:
        assert len(item["rules"]) == len(set(item["rules"])) > 0, item
        assert item["shared"] or "order" not in item["rules"], item


def test_echoes_repeat_the_template_and_good_items_do_not() -> None:
    lines = [words(line) for line in (DATA / "template.txt").read_text("utf-8").splitlines()]

    def share(content: str) -> float:
        found = words(content)
        return max(len(found & line) / len(found) for line in lines)

    for item in BAD:
        if "echo" in item["rules"]:
            assert share(item["content"]) >= 0.8, item
    for item in GOOD:
        assert share(item["content"]) < 0.8, item


def test_numbers_of_cards_and_accounts_are_valid() -> None:
    iban = r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{2,4}){3,7}(?: ?\d)?\b"
    card = r"(?<!\d)\d{4}(?: ?\d{4}){3}(?!\d)"
    secrets = [item["content"] for item in BAD if "secret" in item["rules"]]
    accounts = [found for text in secrets for found in re.findall(iban, text)]
    cards = [found for text in secrets for found in re.findall(card, re.sub(iban, "", text))]
    assert len(accounts) >= 10
    assert len(cards) >= 8
    assert [each for each in accounts if not is_iban_valid(each.replace(" ", ""))] == []
    assert [each for each in cards if not is_luhn_valid(each.replace(" ", ""))] == []
