"""What is stored about a person; what came back since a receipt."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from edenmem.engine.erasure.forgetting import Forgetter
from edenmem.engine.erasure.reports import receipt_of
from edenmem.engine.erasure.sweep import Sweep
from edenmem.engine.exchange.exporter import ExportRequest, export_records
from edenmem.engine.exchange.files import Source
from edenmem.engine.exchange.importer import import_records
from edenmem.engine.seals.hashes import Receipt
from edenmem.models.backup import RecordKind
from edenmem.models.memory import content_hash
from edenmem.settings.schema import BackupSettings
from tests.support.builders import NOW, make_fact, make_held
from tests.support.forgetting import SETTINGS, Town, fill, forget, forgetter, make_town, plan_of
from tests.support.runtime import make_runtime
from tests.support.stores import SECANTUS_TOO

if TYPE_CHECKING:
    from edenmem.store.protocol.store import Store

pytestmark = pytest.mark.slow


@pytest.fixture(params=["sqlite", SECANTUS_TOO])
def town(request: pytest.FixtureRequest, open_store: Callable[[str], Store]) -> Town:
    return make_town(open_store(request.param))


def _check(store: Store, receipt: dict[str, Any]) -> dict[str, int]:
    return asyncio.run(forgetter(store).check(msgspec.convert(receipt, Receipt)))


def test_everything_about_a_person_is_gathered(town: Town, tmp_path: Path) -> None:
    traces = fill(town)
    whole = gzip.compress(town.zenobia_on_discord.id.encode())
    broken = whole[:10] + b"\xff" * 20  # a gzip header, and no data of zlib
    backups = (whole, gzip.compress(b"nobody"), b"damaged", broken)
    for number, content in enumerate(backups, 1):
        (tmp_path / f"edenmem-{number}.jsonl.gz").write_bytes(content)
    settings = msgspec.structs.replace(SETTINGS, backup=BackupSettings(folder=str(tmp_path)))
    eraser = Forgetter(make_runtime(town.store, settings))
    plan = plan_of(town.store, user="zenobia")
    data = eraser.gather(plan)
    assert {each.id for each in data.accounts} == {town.zenobia.id, town.zenobia_on_discord.id}
    assert {each.id for each in data.sessions} == {town.own.id, town.shared.id}
    assert data.mentions == plan.mentions
    assert [Path(each).name for each in data.backups] == [
        "edenmem-1.jsonl.gz",
        "edenmem-3.jsonl.gz (unreadable)",
        "edenmem-4.jsonl.gz (unreadable)",
    ]
    shared = [each for each in data.messages if each.session_id == town.shared.id]
    assert shared
    assert {each.sender for each in shared} == {town.zenobia_on_discord.id}
    everything = msgspec.json.encode(data).decode()
    assert {text for text in traces if text not in everything} == {"quince in the cache"}
    page = eraser.to_markdown(data)
    assert "She keeps quince jam." in page
    assert "- 2" in page.split("## Conversation: pier")[1]


def test_the_copy_to_read_has_fields_quotes_and_held_items(
    open_store: Callable[[str], Store],
) -> None:
    town = make_town(open_store("sqlite"))
    fact = make_fact(
        town.her(),
        "She rows.",
        formed_at=NOW,
        quote="I row at six",
        unconfirmed="perhaps twice",
        key="oar/1",
        tags=("sport",),
        metadata={"club": "Heron"},
        value={"boat": "skiff"},
    )
    item = make_held(town.her(), "She swims.", quote="maybe a swim", reasons="not sure")
    town.store.walk.load(RecordKind.FACT, [fact])
    town.store.walk.load(RecordKind.HELD, [item])
    eraser = forgetter(town.store)
    page = eraser.to_markdown(eraser.gather(plan_of(town.store, user="zenobia")))
    told = ["oar/1", "sport", "Heron", "skiff", "I row at six", "perhaps twice"]
    told += ["She swims.", "maybe a swim", "not sure"]
    assert [each for each in told if each not in page] == []


def test_what_a_copy_brings_back_is_found_by_the_receipt(
    town: Town, open_store: Callable[[str], Store]
) -> None:
    fill(town)
    raw = BytesIO()
    export_records(town.store, raw, ExportRequest())
    receipt = receipt_of(forget(town.store, user="zenobia"))
    assert "zenobia" not in str(receipt).lower()
    assert not _check(town.store, receipt)
    copy = open_store("sqlite")
    import_records(make_runtime(copy), Source(raw, "backup"))
    back = _check(copy, receipt)
    assert back["facts"] >= 2
    assert "sessions" not in back  # they were kept
    again = receipt_of(forget(copy, user="zenobia"))
    assert again["forgetting"] == receipt["forgetting"]
    assert not _check(copy, receipt)


def test_an_erased_fact_is_found_again_by_its_receipt(
    town: Town, open_store: Callable[[str], Store]
) -> None:
    fact = make_fact(town.his(), "Bruno's key is under the mat.", formed_at=NOW)
    town.store.walk.load(RecordKind.FACT, [fact])
    receipt = receipt_of(forget(town.store, facts=[fact.id]))
    assert not _check(town.store, receipt)
    other = make_town(open_store("sqlite"))
    other.store.walk.load(RecordKind.FACT, [fact])
    assert _check(other.store, receipt)["facts"] == 1


@pytest.mark.parametrize("kind", ["secantus"])
def test_a_restored_collection_is_swept(open_store: Callable[[str], Store], kind: str) -> None:
    """Another program restored facts from before the erasure; what was formed since stays."""
    town = make_town(open_store(kind))
    fill(town)
    raw = town.store.connection.database["memory2_facts"]  # type: ignore[attr-defined]
    copies = list(raw.find())
    receipt = receipt_of(forget(town.store, user="zenobia"))
    gone = [each for each in copies if raw.find_one({"_id": each["_id"]}) is None]
    raw.insert_many(gone)
    later = {**gone[0], "content": "New.", "hash": content_hash("New.")}
    del later["_id"]
    later["formed_at"] = NOW + timedelta(days=1)
    kept = raw.insert_one(later).inserted_id
    assert _check(town.store, receipt)
    sweep = Sweep(make_runtime(town.store))
    assert sweep.run() == (len(gone), 0)
    assert [each["_id"] for each in raw.find({"user_id": later["user_id"]})] == [kept]
