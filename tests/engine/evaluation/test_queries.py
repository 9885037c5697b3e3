"""Reading labeled queries."""

from __future__ import annotations

import pytest

from edenmem.engine.evaluation import read_queries
from edenmem.errors import InputError
from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from tests.engine.evaluation.conftest import Memory, line

CAT, CELLO = "Anna has a grey cat called Miso.", "Anna plays the cello."


class TestLabels:
    def test_an_id_and_a_text_name_the_same_fact(self, memory: Memory) -> None:
        (cat,) = memory.add(memory.cast.anna_scope, CAT)
        read = read_queries(
            memory.store,
            [
                line(user="anna", relevant=[cat]),
                line(user="anna", relevant=[CAT]),
                line(user="anna", relevant=[cat.upper(), f"  {CAT}\n"]),
            ],
        )
        assert [query.relevant for query in read.queries] == [{cat}] * 3
        assert not read.unknown

    def test_a_text_means_every_fact_with_that_text(self, memory: Memory) -> None:
        (own,) = memory.add(memory.cast.anna_scope, CAT)
        (everybodys,) = memory.add(memory.cast.agent_scope, CAT)
        memory.add(memory.cast.bruno_scope, CAT)
        (query,) = read_queries(memory.store, [line(user="anna", relevant=[CAT])]).queries
        assert query.relevant == {own, everybodys}

    def test_a_query_that_nothing_answers_is_one(self, memory: Memory) -> None:
        read = read_queries(memory.store, [line(relevant=[])])
        assert read.unanswerable == 1
        assert read.queries[0].relevant == frozenset()

    def test_unknown_labels_are_reported_by_line(self, memory: Memory) -> None:
        (cat,) = memory.add(memory.cast.anna_scope, CAT)
        (cello,) = memory.add(memory.cast.bruno_scope, CELLO)
        nobody = new_id()
        read = read_queries(
            memory.store,
            [
                line(user="anna", relevant=[cat, nobody, "never said"]),
                "",
                line(user="anna", relevant=[cello]),
            ],
        )
        assert [(each.line, each.label) for each in read.unknown] == [
            (1, nobody),
            (1, "never said"),
            (3, cello),
        ]
        assert "unknown fact" in read.unknown[0].why
        assert "'never said'" in read.unknown[1].why
        assert "outside the scopes of this line" in read.unknown[2].why
        assert [query.relevant for query in read.queries] == [{cat}]
        assert read.lost == (3,)  # and it is not taken for one that nothing answers
        assert read.unanswerable == 0


class TestReaders:
    def test_the_scopes_are_those_of_a_search(self, memory: Memory) -> None:
        cast = memory.cast
        shard = cast.add_shard("route")
        cast.add_shard("garden")
        cast.add_session(cast.anna, group_id="choir")
        read = read_queries(
            memory.store,
            [line(), line(user="anna"), line(user="anna", group="choir", shard="ROUTE")],
        )
        agent, group = cast.agent_scope, Scope.group(cast.eve.id, "choir")
        both = {shard, Scope.shard(cast.eve.id, "garden")}
        assert set(read.queries[0].scopes) == {agent, *both}
        assert set(read.queries[1].scopes) == {agent, *both, *cast.anna_scopes}
        assert set(read.queries[2].scopes) == {agent, shard, group, *cast.anna_scopes}

    def test_a_second_account_has_the_persons_facts(self, memory: Memory) -> None:
        (cat,) = memory.add(memory.cast.anna_scope, CAT)
        (query,) = read_queries(memory.store, [line(user="anna#1234", relevant=[cat])]).queries
        assert query.relevant == {cat}


class TestRefusing:
    @pytest.mark.parametrize(
        ("bad", "says"),
        [
            ("{", "the line is not valid JSON (it ends early)"),
            ("[]", "the line must be a JSON object"),
            ('{"query": "q", "agent": "eve"}', "relevant is missing"),
            ('{"query": "q", "agent": "eve", "relevant": "x"}', "relevant must be a list"),
            ('{"query": 1, "agent": "eve", "relevant": []}', "query must be text"),
            ('{"query": " ", "agent": "eve", "relevant": []}', "query must not be empty"),
            (
                '{"query": "q", "agent": "eve", "relevant": [], "usr": "a"}',
                "usr is not a known field",
            ),
            ('{"query": "q", "agent": "adam", "relevant": []}', "'adam'"),
            ('{"query": "q", "agent": "eve", "user": "zoe", "relevant": []}', "'zoe'"),
            ('{"query": "q", "agent": "eve", "shard": "x", "relevant": []}', "'x'"),
            (b"\xff\xfe", "the line is not valid UTF-8 (byte 1)"),
        ],
    )
    def test_a_bad_line_is_named_by_its_number(
        self, memory: Memory, bad: str | bytes, says: str
    ) -> None:
        with pytest.raises(InputError) as caught:
            read_queries(memory.store, [line(), "\n", bad])
        assert caught.value.line == 3
        assert caught.value.message.startswith("line 3: ")
        assert says in caught.value.message
        assert caught.value.hint

    @pytest.mark.parametrize("lines", [[], ["", "  \n"]])
    def test_a_file_without_queries_is_an_error(self, memory: Memory, lines: list[str]) -> None:
        with pytest.raises(InputError, match="no queries"):
            read_queries(memory.store, lines)
