"""The text list on SQLite: what is a word, what is near one, and what is only text."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.models.changes import AddFact, RemoveFact
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.search import text_ranking
from edenmem.search.text_ranking import Corpus
from edenmem.search.words import MOST_WORDS, query_words, within_one_edit
from edenmem.store.sqlite import SqliteStore
from edenmem.store.sqlite.search import fulltext
from edenmem.store.sqlite.search.fulltext import _edits_of_head
from edenmem.text import clean
from tests.support.builders import NOW, make_fact, revision
from tests.support.memory import add_fact, add_facts, applied, apply

pytestmark = pytest.mark.slow

SCOPE = Scope.user(new_id(), new_id())
OTHER = Scope.user(new_id(), new_id())


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "memory.db")
    store.database.initialize()
    yield store
    store.database.close()


def search(store: SqliteStore, query: str, *scopes: Scope, limit: int = 20) -> list[str]:
    filter = FactFilter(scopes=scopes or (SCOPE,))
    (found,) = store.search.text_candidates(filter, [query], limit=limit)
    contents = store.memory.facts_by_ids(scopes or [SCOPE], [one.fact_id for one in found])
    return [contents[one.fact_id].content for one in found]


# -- scripts without spaces ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "queries"),
    [
        ("我住在上海的一个小房子里", ["上海", "小房子", "上", "他住在上海"]),
        ("彼は東京タワーが好きです", ["東京", "タワー", "好きです"]),
        ("ﾄｳｷｮｳ ＡＢＣ", ["トウキョウ", "abc"]),
        ("서울에서 커피를 마셔요", ["서울", "커피", "서울에서"]),
        ("เขาชอบดื่มกาแฟตอนเช้า", ["กาแฟ", "ตอนเช้า", "ดื่มกาแฟ"]),
        ("လက်ဖက်ရည်ကြိုက်တယ်", ["လက်ဖက်ရည်"]),
        ("अन्ना को चाय पसंद है", ["चाय", "पसंद"]),
        ("Анна любит чёрный чай", ["чай", "чёрный", "ЛЮБИТ"]),
        ("Ἡ Ἄννα ἀγαπᾷ τὴν θάλασσαν", ["θάλασσαν"]),
        ("Café Ångström in Zürich", ["cafe", "angstrom", "zurich", "Zu\u0308rich"]),
        ("mixed 上海 and English", ["上海", "english", "english 上海"]),
    ],
)
def test_every_script_is_found(opened: SqliteStore, content: str, queries: list[str]) -> None:
    add_fact(opened, SCOPE, content)
    add_fact(opened, SCOPE, "Something else altogether.")
    add_fact(opened, OTHER, content + ".")
    for query in queries:
        assert search(opened, query) == [content], query


def test_characters_in_another_order_do_not_match(opened: SqliteStore) -> None:
    add_fact(opened, SCOPE, "我住在上海")
    assert search(opened, "海上") == []


# -- stems and stop words ------------------------------------------------------------------------


def test_words_match_by_their_stem(opened: SqliteStore) -> None:
    add_fact(opened, SCOPE, "Anna was painting landscapes.")
    for query in ("paint", "painted", "a LANDSCAPE"):
        assert search(opened, query) == ["Anna was painting landscapes."], query


def test_stop_words_are_left_out_unless_there_is_nothing_else(opened: SqliteStore) -> None:
    add_fact(opened, SCOPE, "The who and the what of it.")
    add_fact(opened, SCOPE, "Anna plays the cello.")
    assert search(opened, "what does she play on the cello") == ["Anna plays the cello."]
    assert search(opened, "the who") == ["The who and the what of it.", "Anna plays the cello."]


def test_a_query_has_a_bounded_number_of_words() -> None:
    assert len(query_words(" ".join(f"word{n}" for n in range(10_000)))) == MOST_WORDS
    assert query_words("Bees, bees & BEES!") == ["bees"]
    assert query_words("上海上海上海") == ["上 海", "海 上"]
    assert query_words("。 ! 🙂") == []


# -- misspellings --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "typo", ["guitr", "guitarr", "giutar", "gvitar", "uitar", "xguitar", "guitat", "guitra"]
)
def test_an_unknown_word_finds_its_neighbor(opened: SqliteStore, typo: str) -> None:
    add_fact(opened, SCOPE, "Ben plays the guitar.")
    add_fact(opened, SCOPE, "Ben has a cat.")
    assert search(opened, typo) == ["Ben plays the guitar."]
    assert search(opened, f"{typo} zzzzzz") == ["Ben plays the guitar."]


def test_words_that_exist_are_taken_as_they_are(opened: SqliteStore) -> None:
    """Fuzzing every word made clean queries worse."""
    add_fact(opened, SCOPE, "A house on the hill.")
    add_fact(opened, SCOPE, "A horse on the hill.")
    assert search(opened, "house") == ["A house on the hill."]


@pytest.mark.parametrize("query", ["1985", "ca", "cst", "xyxyxyx", "gui"])
def test_numbers_short_words_and_far_ones_have_no_neighbors(
    opened: SqliteStore, query: str
) -> None:
    add_fact(opened, SCOPE, "In 1984 Ben bought a cat and a guitar.")
    assert search(opened, query) == []


@pytest.mark.parametrize("word", ["haለed", "я" * 20_000, "x" + "я" * 20_000])
def test_words_that_fts_cuts_within_a_character(opened: SqliteStore, word: str) -> None:
    fact = add_fact(opened, SCOPE, f"{word} boats")
    assert search(opened, "boats") == [fact.content]
    assert search(opened, word) == [fact.content]
    assert search(opened, word[:5] + "z boots") == [fact.content]
    applied(opened, RemoveFact(scope=SCOPE, fact_id=fact.id, expected_version=1, at=NOW))
    with opened.connections.reading() as connection:
        assert connection.execute("SELECT count(*) FROM facts_words").fetchone() == (0,)


def test_misspelled_words_of_other_scripts(opened: SqliteStore) -> None:
    add_fact(opened, SCOPE, "Анна играет на гитаре")
    assert search(opened, "гатаре") == ["Анна играет на гитаре"]


def test_neighbors_in_other_scopes_are_not_shown(opened: SqliteStore) -> None:
    add_fact(opened, OTHER, "Ben plays the guitar.")
    assert search(opened, "guitr") == []


@given(st.text("abc", min_size=4, max_size=7), st.data())
def test_one_edit_is_one_edit(word: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(word) - 1))
    letter = data.draw(st.sampled_from("abcd"))
    a, b = word[:place], word[place:]
    edited = data.draw(
        st.sampled_from([a + b[1:], a + letter + b[1:], a + letter + b, a + b[1::-1] + b[2:]])
    )
    assert within_one_edit(word, edited)
    assert within_one_edit(edited, word)
    assert not within_one_edit(word, "xy" + word)
    if place < 3 and edited != word:
        assert edited in _edits_of_head(word)


# -- nothing is syntax ---------------------------------------------------------------------------


@settings(max_examples=60)
@given(st.text(max_size=40))
def test_no_query_is_an_error(opened: SqliteStore, query: str) -> None:
    add_facts_once(opened)
    assert len(search(opened, query)) <= 1
    assert search(opened, f"{query} saffron") == ["Saffron and honey."]


def add_facts_once(store: SqliteStore) -> None:
    apply(store, AddFact(fact=make_fact(SCOPE, "Saffron and honey.")))


# -- many scopes ---------------------------------------------------------------------------------


def test_few_and_many_scopes_find_the_same(opened: SqliteStore) -> None:
    scopes = [Scope.user(SCOPE.agent_id, new_id()) for _ in range(50)]
    add_facts(opened, *(make_fact(scope, f"Bees of {n}.") for n, scope in enumerate(scopes)))
    add_fact(opened, OTHER, "Bees of others.")
    assert len(search(opened, "bees", *scopes, limit=99)) == 50
    assert len(search(opened, "bees", *scopes[:7], limit=99)) == 7


def test_in_many_scopes_a_misspelled_word_needs_its_first_letters(
    opened: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fulltext, "_MOST_HEADS", 8)
    scopes = [Scope.user(SCOPE.agent_id, new_id()) for _ in range(9)]
    add_facts(opened, *(make_fact(scope, "Harbours of lanterns.") for scope in scopes))
    assert len(search(opened, "xarbours", *scopes[:8])) == 8
    assert search(opened, "xarbours", *scopes) == []
    assert len(search(opened, "harbuors", *scopes)) == 9
    # Each unknown word counts: of two, both are looked up whole in four scopes.
    assert len(search(opened, "xxxxxxx xanterns", *scopes[:4])) == 4
    assert search(opened, "xxxxxxx xanterns", *scopes[:8]) == []
    assert len(search(opened, "xxxxxxx lantersn", *scopes)) == 9


# -- in step -------------------------------------------------------------------------------------


@settings(max_examples=15)
@given(st.lists(st.text(min_size=1, max_size=30).map(clean).filter(bool), max_size=8))
def test_what_is_forgotten_leaves_no_word_behind(tmp_path_factory, texts: list[str]) -> None:
    store = SqliteStore(tmp_path_factory.mktemp("words") / "memory.db")
    store.database.initialize()
    facts = [make_fact(SCOPE, text) for text in dict.fromkeys(texts)]
    add_facts(store, *facts)
    for number, fact in enumerate(facts):
        if number % 2:
            content = f"{number} 東京 \u0e01\u0e33 é"
            applied(store, revision(fact, content, scope=SCOPE))
    for fact in list(store.memory.facts(FactFilter(scopes=(SCOPE,)))):
        removal = RemoveFact(
            scope=SCOPE,
            fact_id=fact.id,
            expected_version=fact.version,
            at=NOW + timedelta(seconds=1),
        )
        applied(store, removal)
    with store.connections.writing() as connection:
        connection.execute("INSERT INTO facts_text (facts_text) VALUES ('optimize')")
        connection.execute("INSERT INTO facts_text (facts_text) VALUES ('integrity-check')")
        assert connection.execute("SELECT term FROM facts_words").fetchall() == []
    store.database.close()


def test_a_stem_that_has_another_stem_is_found(opened: SqliteStore) -> None:
    """The stem of "universe" is "univers", which itself would be stemmed to "univer"."""
    add_fact(opened, SCOPE, "Ben studies the universe.")
    assert search(opened, "univrse") == ["Ben studies the universe."]


def test_words_are_weighed_within_the_scopes_as_lucene_weighs_them(opened: SqliteStore) -> None:
    """Known failure 88: a word that every fact has still counts, a rarer one counts for more, and
    other people's facts do not matter."""
    contents = ["kiln", "kiln kiln glaze", "kiln clay wheel", "kiln glaze and clay and ash"]
    facts = [make_fact(SCOPE, content) for content in contents]
    others = [f"glaze of others, number {n}" for n in range(9)]
    add_facts(opened, *facts, *(make_fact(OTHER, content) for content in others))

    def weight(having: int) -> float:
        return math.log(1 + (4 - having + 0.5) / (having + 0.5))

    expected = {
        fact.id: weight(4) + (weight(2) if "glaze" in fact.content else 0) for fact in facts
    }
    for filter in (
        FactFilter(scopes=(SCOPE,)),
        FactFilter(scopes=(SCOPE,), since=NOW - timedelta(days=999)),
    ):
        [found] = opened.search.text_candidates(filter, ["kiln glaze"], limit=9)
        assert {one.fact_id: one.score for one in found} == pytest.approx(expected, rel=1e-6)


def test_the_only_match_of_a_young_memory_counts(opened: SqliteStore) -> None:
    add_facts(opened, make_fact(SCOPE, "Anna sings."))
    [[found]] = opened.search.text_candidates(FactFilter(scopes=(SCOPE,)), ["anna"], limit=9)
    assert found.score > 0.1


def test_of_many_facts_words_that_most_have_are_left_out(
    opened: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = [make_fact(SCOPE, f"Anna sings {'loudly ' * (n % 4)}on day {n}.") for n in range(40)]
    add_facts(opened, *facts)

    def best(query: str) -> list[str]:
        [found] = opened.search.text_candidates(FactFilter(scopes=(SCOPE,)), [query], limit=12)
        assert all(one.score > 0 for one in found)
        return [one.fact_id for one in found]

    assert len(best("anna 9")) == 12
    monkeypatch.setattr(text_ranking, "MANY", 39)
    assert best("anna 8") == [facts[8].id]
    assert len(best("anna")) == 12


def test_the_best_of_many_matches_are_those_of_a_reference(opened: SqliteStore) -> None:
    chance = random.Random(7)
    words = [f"word{place}" for place in range(60)]
    contents = {
        " ".join(dict.fromkeys(chance.choices(words, range(60, 0, -1), k=size)))
        for size in (1, 2, 3, 5, 8, 13, 40)
        for _ in range(120)
    }
    facts = [make_fact(SCOPE, content) for content in sorted(contents)]
    add_facts(opened, *facts)
    corpus = Corpus((fact.id, fact.content) for fact in facts)
    for number in range(40):
        query = " ".join(chance.sample(words, 1 + number % 5))
        expected = corpus.best(corpus.weigh(query), 7)
        [found] = opened.search.text_candidates(FactFilter(scopes=(SCOPE,)), [query], limit=7)
        assert [one.fact_id for one in found] == [fact_id for fact_id, _ in expected]
        assert [one.score for one in found] == pytest.approx([score for _, score in expected])


def test_what_changes_is_counted_again(opened: SqliteStore) -> None:
    kept = add_fact(opened, SCOPE, "A kiln and clay.")
    gone = add_fact(opened, SCOPE, "A kiln and ash.")
    filter = FactFilter(scopes=(SCOPE,))
    [[first, _]] = opened.search.text_candidates(filter, ["kiln"], limit=9)
    removal = RemoveFact(scope=SCOPE, fact_id=gone.id, expected_version=1, at=NOW)
    applied(opened, removal)
    [[alone]] = opened.search.text_candidates(filter, ["kiln"], limit=9)
    assert alone.fact_id == kept.id
    assert alone.score == pytest.approx(math.log(4 / 3))
    assert first.score != alone.score


def test_of_equal_scores_at_the_limit_the_newest_are_kept(opened: SqliteStore) -> None:
    facts = [make_fact(SCOPE, f"One kiln in town{number}.") for number in range(9)]
    better = make_fact(SCOPE, "A kiln and clay.")
    add_facts(opened, better, *facts)
    [found] = opened.search.text_candidates(FactFilter(scopes=(SCOPE,)), ["kiln clay"], limit=4)
    expected = [better, *reversed(facts)]
    assert [candidate.fact_id for candidate in found] == [fact.id for fact in expected[:4]]


def test_a_text_that_another_process_changed_is_read_again(
    opened: SqliteStore, tmp_path: Path
) -> None:
    scopes = [SCOPE, OTHER]
    add_fact(opened, SCOPE, "A kiln.")
    plain = add_fact(opened, OTHER, "Some clay.")
    assert search(opened, "kiln", *scopes) == ["A kiln."]
    other = SqliteStore(tmp_path / "memory.db")
    content = "One kiln."
    applied(other, revision(plain, content, scope=OTHER))
    other.database.close()
    assert search(opened, "kiln", *scopes) == [content, "A kiln."]
