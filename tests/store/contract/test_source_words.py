"""The words of source messages: found with the fact, by its readers alone, and gone with it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from edenmem.engine.exchange.exporter import ExportRequest, export_records
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.importer import import_records
from edenmem.engine.history.undo import Undoer
from edenmem.models.backup import RecordKind, Selection
from edenmem.models.host import Message
from edenmem.models.indexes import IndexWish
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter, Question
from edenmem.search.text_ranking import Corpus
from tests.support.backup import dump
from tests.support.builders import FixedClock, make_actor, make_message, removal, revision
from tests.support.forgetting import Town, forget, make_town
from tests.support.memory import add_fact, applied
from tests.support.runtime import make_runtime
from tests.support.stores import SECANTUS_TOO

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

WISH = IndexWish(analyzer="lucene.english")


def index(store: Store) -> None:
    """Create the index where a store needs one."""
    if store.search.search_ability().kind == "embedded":
        assert not store.search.search_ability().source_words
        store.indexes.create_index("facts_source", WISH)
    assert store.search.search_ability().source_words


@pytest.fixture
def town(store: Store) -> Town:
    town = make_town(store)
    index(store)
    return town


def say(town: Town, content: str, *, session: str = "shared", by: str = "bruno") -> Message:
    """Store one more message."""
    of = getattr(town, session)
    message = make_message(of, content, sender=getattr(town, by).id)
    town.store.host.add_messages(of.id, [message])
    return message


def learn(town: Town, scope: Scope, content: str, *sources: Message, **fields: object) -> Fact:
    """Add a fact that comes from messages."""
    ids = tuple(message.id for message in sources)
    return add_fact(town.store, scope, content, source_message_ids=ids, **fields)


def found(store: Store, query: str, *scopes: Scope) -> set[str]:
    """The facts whose source messages have a word of the query."""
    (one,) = store.search.text_candidates(FactFilter(scopes=scopes), [query], limit=9, source=True)
    return {candidate.fact_id for candidate in one}


def test_a_fact_is_found_by_the_words_it_lost_and_by_its_readers_alone(town: Town) -> None:
    """Known failures 4 and 5: nothing widens beyond the scopes that are named."""
    store = town.store
    boat = say(town, "The old trawler needs a new gearbox before the regatta.")
    bruno = learn(town, town.his(), "Bruno repairs his boat.", boat)
    hers = learn(town, town.her(), "Bruno's boat is in repair.", boat)
    assert found(store, "gearbox", town.his()) == {bruno.id}
    assert found(store, "regattas", town.her()) == {hers.id}
    assert found(store, "gearbox", town.everybody, town.group) == set()
    assert found(store, "gearbox") == set()
    assert found(store, "repairs", town.his()) == set()  # a word of the fact alone
    (plain,) = store.search.text_candidates(FactFilter(scopes=(town.his(),)), ["gearbox"], limit=9)
    assert plain == []


def test_a_whole_range_of_messages_says_nothing_of_one_fact(town: Town) -> None:
    said = [say(town, f"A word on gearbox {n}.") for n in range(4)]
    learn(town, town.his(), "Bruno has a boat.", *said)
    three = learn(town, town.his(), "Bruno has an engine.", *said[:3])
    assert found(town.store, "gearbox", town.his()) == {three.id}


@pytest.mark.slow
def test_stores_rank_sources_alike_and_complete_their_scores(
    open_store: Callable[[str], Store],
) -> None:
    contents = [
        "The trawler needs a gearbox. A gearbox for the trawler!",
        "Regatta on Sunday, said the harbour master.",
        "安娜住在上海的一个小房子里, near the regatta",
        "Nothing to see.",
    ]
    queries = ["gearbox regatta", "上海", "regata", "sunday trawlers gearboxes"]
    for kind in ("sqlite", SECANTUS_TOO.values[0]):
        store = open_store(kind)
        town = make_town(store)
        index(store)
        facts = [
            learn(town, town.his(), f"Fact number {n}.", say(town, content))
            for n, content in enumerate(contents)
        ]
        without = add_fact(store, town.his(), "A fact without a source.")
        mine = FactFilter(scopes=(town.his(),))
        corpus = Corpus(zip((fact.id for fact in facts), contents, strict=True))
        asked = [Question(query) for query in queries]
        alone = store.search.candidates(mine, asked, ["source"], model="", limit=9)
        both = store.search.candidates(mine, asked, ["text", "source"], model="", limit=9)
        for query, one, two in zip(queries, alone.lists, both.lists, strict=True):
            weighed = corpus.weigh(query)
            assert list(one["source"].found) == [key for key, _ in corpus.best(weighed, 9)]
            assert two["source"] == one["source"], query
            assert without.id not in one["source"].found
            assert one["source"].whole > 0


def test_words_follow_the_fact_through_correction_removal_and_undo(town: Town) -> None:
    store, scope = town.store, town.his()
    boat, mast = say(town, "The trawler needs a gearbox."), say(town, "The mast is spruce.")
    fact = learn(town, scope, "Bruno repairs his boat.", boat)
    applied(
        store,
        revision(
            fact, "Bruno repairs his boat and its mast.", scope=scope, source_message_ids=(mast.id,)
        ),
    )
    assert found(store, "gearbox", scope) == found(store, "spruce", scope) == {fact.id}
    applied(store, removal(fact, scope=scope, expected_version=2))
    assert found(store, "gearbox spruce", scope) == set()
    (entry,) = store.log.audit(actions=["remove_fact"])
    undoer = Undoer(make_runtime(store, actor=make_actor("undo"), clock=FixedClock()))
    undoer.undo(entry.id)
    assert found(store, "gearbox", scope) == found(store, "spruce", scope) == {fact.id}


def test_forgotten_messages_are_no_source_of_what_stays(town: Town) -> None:
    """Known failure 49's kin: the fact of another person that came from a forgotten message."""
    store = town.store
    hers = say(town, "Quince marmalade and a gearbox.", by="zenobia_on_discord")
    his = say(town, "A gearbox and a regatta.")
    mixed = learn(town, town.group, "The harbour opens at six.", hers, his)
    alone = learn(town, town.everybody, "Answers are short.", hers)
    assert found(store, "marmalade", town.group, town.everybody) == {mixed.id, alone.id}
    assert forget(store, user="zenobia").complete
    assert found(store, "marmalade", town.group, town.everybody) == set()
    assert found(store, "regatta", town.group) == {mixed.id}
    kept = store.memory.fact(mixed.id)
    assert kept == mixed  # it still says where it comes from
    if store.search.search_ability().kind == "embedded":
        store.indexes.update_index("facts_source", WISH)  # a rebuild does not bring them back
        assert found(store, "marmalade", town.group, town.everybody) == set()


def test_a_forgotten_session_takes_its_words_from_facts_of_other_sessions(town: Town) -> None:
    store = town.store
    there, here = say(town, "Quince marmalade."), say(town, "A regatta.", session="lone")
    both = learn(town, town.his(), "Bruno cooks.", there, here, session_id=town.lone.id)
    assert found(store, "marmalade", town.his()) == {both.id}
    assert forget(store, session=town.shared.id).complete
    assert found(store, "marmalade", town.his()) == set()
    assert found(store, "regatta", town.his()) == {both.id}


def test_a_backup_brings_the_words_along_with_the_messages(
    open_store: Callable[[str], Store],
) -> None:
    origin, other = open_store("sqlite"), open_store("sqlite")
    town = make_town(origin)
    index(origin)
    index(other)
    fact = learn(town, town.his(), "Bruno repairs his boat.", say(town, "A new gearbox."))
    records = dump(origin, tuple(RecordKind), Selection())
    late = [each for each in records if each[0] is RecordKind.MESSAGE]
    for kind, record in [each for each in records if each not in late] + late:
        other.walk.load(kind, [record])
    assert found(other, "gearbox", town.his()) == {fact.id}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", SECANTUS_TOO.values[0]])
def test_an_export_takes_the_marks_of_forgotten_messages_along(
    open_store: Callable[[str], Store], kind: str
) -> None:
    """A search after an import finds no fact by a word that was forgotten before the export."""
    origin, other = open_store(kind), open_store(kind)
    town = make_town(origin)
    hers, his = say(town, "Marmalade.", by="zenobia_on_discord"), say(town, "A regatta.")
    fact = learn(town, town.group, "The harbour opens at six.", hers, his)
    assert forget(origin, user="zenobia").complete
    file = io.BytesIO()
    export_records(origin, file, ExportRequest())
    marked = [line for line in file.getvalue().splitlines() if b'"forgotten":true' in line]
    assert hers.id.encode() in b"".join(marked)
    assert his.id.encode() not in b"".join(marked)
    for added in (True, False):  # twice: the second import changes nothing
        report = import_records(make_runtime(other), Source(io.BytesIO(file.getvalue()), "test"))
        assert (report.failed, report.differing, report.total("added") > 0) == (0, 0, added)
    index(other)
    assert found(other, "marmalade", town.group) == set()
    assert found(other, "regatta", town.group) == {fact.id}
    again = dump(other, [RecordKind.MESSAGE], Selection())
    assert again == dump(origin, [RecordKind.MESSAGE], Selection())
