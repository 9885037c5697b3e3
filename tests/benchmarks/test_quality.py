"""The labeled set is sound, the figures can be made, and LoCoMo's file can be read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from edenmem.engine.evaluation import read_queries
from edenmem.models.scope import ScopeKind
from edenmem.settings.schema import SearchSettings
from edenmem.store.protocol.store import Store
from edenmem.text import word_count
from tests.benchmarks import labels, locomo, quality
from tests.support.cross_encoder import cross_encoder
from tests.support.embedder import FakeEmbedder

pytestmark = pytest.mark.exhaustive

OWN = labels.own()
FACTS = {fact.id: fact for fact in OWN.facts}


class TestOurOwnSet:
    def test_it_is_as_large_and_as_varied_as_it_is_said_to_be(self) -> None:
        assert len(OWN.facts) >= 300
        assert len(OWN.queries) >= 150
        assert {fact.agent for fact in OWN.facts} == {"mira", "otto"}
        assert len({fact.user for fact in OWN.facts if fact.user}) >= 5
        assert {fact.scope for fact in OWN.facts} == set(ScopeKind) - {ScopeKind.SESSION}
        assert sum(fact.was is not None for fact in OWN.facts) >= 5
        kinds = Counter(query.kind for query in OWN.queries)
        assert kinds.keys() == {
            "exact",
            "paraphrase",
            "typo",
            "name",
            "date",
            "multi",
            "language",
            "no-answer",
        }
        assert min(kinds.values()) >= 5

    def test_every_fact_is_one_of_its_own(self) -> None:
        assert len(FACTS) == len(OWN.facts)
        texts = [(fact.home, fact.content) for fact in OWN.facts]
        assert len(set(texts)) == len(texts)
        assert len({fact.fact_id for fact in OWN.facts}) == len(texts)
        for fact in OWN.facts:
            assert fact.content == fact.content.strip()
            assert word_count(fact.content) <= 30, fact.id
            assert fact.was != fact.content

    def test_every_query_is_one_of_its_own(self) -> None:
        asked = [(query.agent, query.user, query.group, query.query) for query in OWN.queries]
        assert len(set(asked)) == len(asked)

    def test_every_relevant_fact_is_there_and_its_reader_may_see_it(self) -> None:
        for query in OWN.queries:
            assert len(set(query.relevant)) == len(query.relevant), query
            assert bool(query.relevant) == (query.kind != "no-answer"), query
            for label in query.relevant:
                assert label in FACTS, query
                assert query.sees(FACTS[label]), f"{query.query!r} is not shown {label}"

    async def test_the_engine_agrees_on_who_sees_what(self, sqlite_store: Store) -> None:
        await labels.fill(sqlite_store, OWN.facts, None)
        read = read_queries(sqlite_store, OWN.lines())
        assert not read.unknown
        assert len(read.queries) == len(OWN.queries)
        for asked, query in zip(OWN.queries, read.queries, strict=True):
            seen = {fact.home for fact in OWN.facts if asked.sees(fact)}
            assert seen <= set(query.scopes)
            assert not {fact.home for fact in OWN.facts if not asked.sees(fact)} & set(query.scopes)


async def test_the_set_with_sources_is_sound_and_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = labels.with_sources()
    assert {query.kind for query in data.queries} == {"lost", "kept"}
    assert {id for query in data.queries for id in query.relevant} <= {f.id for f in data.facts}
    assert all(1 <= len(fact.sources) <= 3 for fact in data.facts)
    monkeypatch.setattr(quality, "open_embedder", lambda settings: FakeEmbedder())
    few = labels.Labeled(facts=data.facts, queries=data.queries[:25])
    measured = await quality.measure(few, tmp_path)
    assert measured.gains["text+source"] != measured.gains["text"]
    assert "| with the words of the source | before | after |" in quality.report(measured)


async def test_the_tables_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the model, for speed: the figures are no measure of anything."""
    monkeypatch.setattr(quality, "open_embedder", lambda settings: FakeEmbedder())
    few = labels.Labeled(facts=OWN.facts, queries=OWN.queries[:40])
    measured = await quality.measure(few, tmp_path)
    text = quality.report(measured)
    assert "323 facts, 37 queries with an answer, 3 without one" in text
    for name in ("convex", "rrf", "semantic", "text", "convex+recency", "convex+mmr"):
        assert f"| {name} | " in text
    assert "rerank" not in text
    assert "| typo | " in text
    assert "nan" not in text


async def test_a_reranker_is_measured_if_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quality, "open_embedder", lambda settings: FakeEmbedder())
    few = labels.Labeled(facts=OWN.facts, queries=OWN.queries[:5])
    folder = cross_encoder(tmp_path / "tiny")
    search = SearchSettings(rerank_path=str(folder), rerank_depth=5)
    text = quality.report(await quality.measure(few, tmp_path, search=search))
    assert "reranker tiny" in text
    for name in ("convex+rerank", "rrf+rerank", "text+rerank"):
        assert f"| {name} | " in text


def sample(**fields: Any) -> dict[str, Any]:
    """A conversation in the shape of LoCoMo's file, of our own invention."""
    return {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ulla",
            "speaker_b": "Rasmus",
            "session_1_date_time": "1:56 pm on 8 May, 2026",
            "session_1": [
                {"speaker": "Ulla", "dia_id": "D1:1", "text": "I bought a loom yesterday!"},
                {
                    "speaker": "Rasmus",
                    "dia_id": "D1:2",
                    "text": "Look at my kayak.",
                    "img_url": ["https://example.org/kayak.jpg"],
                    "blip_caption": "a photo of a red kayak",
                },
            ],
            "session_2_date_time": "9:10 am on 2 June, 2026",
            "session_2": [
                {"speaker": "Ulla", "dia_id": "D2:1", "text": "My first blanket is done."},
            ],
            "session_3_date_time": "",
        },
        "observation": {
            "session_1_observation": {
                "Ulla": [["Ulla bought a loom.", "D1:1"]],
                "Rasmus": [["Rasmus owns a red kayak.", ["D1:2"]]],
            },
            "session_2_observation": {
                "Ulla": [["Ulla wove a blanket on her loom.", "D2:1, D1:1"]],
            },
        },
        "qa": [
            {"question": "When did Ulla get her loom?", "answer": "7 May 2026",
             "evidence": ["D1:1"], "category": 2},
            {"question": "What did Ulla make?", "answer": "a blanket",
             "evidence": ["D:2:1; D1:2"], "category": 1},
            {"question": "What colour is Ulla's kayak?", "adversarial_answer": "red",
             "evidence": ["D1:2"], "category": 5},
            {"question": "Where do they live?", "answer": "?", "evidence": [], "category": 3},
        ],
        **fields,
    }  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "locomo.json"
    path.write_text(json.dumps([sample(), sample(sample_id="conv-2")]), "utf-8")
    return path


class TestLocomo:
    def test_observations_become_facts(self, file: Path) -> None:
        data = locomo.load(file)
        assert [fact.content for fact in data.facts[:3]] == [
            "Ulla bought a loom. (1:56 pm on 8 May, 2026)",
            "Rasmus owns a red kayak. (1:56 pm on 8 May, 2026)",
            "Ulla wove a blanket on her loom. (9:10 am on 2 June, 2026)",
        ]
        assert Counter(fact.user for fact in data.facts) == {"conv-1": 3, "conv-2": 3}
        first, second, trap = data.queries[:3]
        by_id = {fact.id: fact.content[:10] for fact in data.facts}
        assert [by_id[label] for label in first.relevant] == ["Ulla bough", "Ulla wove "]
        assert [by_id[label] for label in second.relevant] == ["Ulla wove ", "Rasmus own"]
        assert (first.kind, second.kind, trap.kind) == ("temporal", "multi-hop", "no-answer")
        assert trap.relevant == ()
        assert len(data.queries) == 6  # what has no evidence cannot be measured

    def test_turns_become_facts(self, file: Path) -> None:
        data = locomo.load(file, unit="turns")
        assert [fact.content for fact in data.facts[:2]] == [
            "Ulla, 1:56 pm on 8 May, 2026: I bought a loom yesterday!",
            "Rasmus, 1:56 pm on 8 May, 2026: Look at my kayak. (shows a photo of a red kayak)",
        ]
        assert data.queries[1].relevant == ("conv-1/D2:1", "conv-1/D1:2")

    @pytest.mark.parametrize("unit", ["observations", "turns"])
    async def test_its_queries_can_be_measured(
        self, sqlite_store: Store, file: Path, unit: locomo.Unit
    ) -> None:
        data = locomo.load(file, unit=unit)
        await labels.fill(sqlite_store, data.facts, None)
        read = read_queries(sqlite_store, data.lines())
        assert not read.unknown
        assert len(read.queries) == 6
        assert read.unanswerable == 2

    @pytest.mark.parametrize(
        "text",
        ["", "{}[", '{"qa": []}', "[[]]", '[{"sample_id": "x"}]', json.dumps([sample(qa=[{}])])],
    )
    def test_another_file_is_refused(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "other.json"
        path.write_text(text, "utf-8")
        with pytest.raises(locomo.LocomoError, match=r"other\.json is not LoCoMo's file"):
            locomo.load(path)

    def test_the_script_says_what_is_wrong(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit) as caught:
            quality.main(["--locomo", str(tmp_path / "missing.json")])
        assert caught.value.code == 2
        assert "missing.json" in capsys.readouterr().err


def test_a_difference_has_an_interval_of_pairs() -> None:
    """What all queries gain alike is certain; what some gain and others lose is not."""
    before = {str(number): number / 100 for number in range(50)}
    alike = quality.compare(before, {query: gain + 0.1 for query, gain in before.items()})
    assert (alike.low, alike.gain, alike.high) == pytest.approx((0.1, 0.1, 0.1))
    turns = {query: gain + (0.3 if int(query) % 2 else -0.3) for query, gain in before.items()}
    noise = quality.compare(before, {**turns, "another": 9.0})
    assert noise.low < -0.05 < noise.gain < 0.05 < noise.high
    assert noise == quality.compare(before, turns)
