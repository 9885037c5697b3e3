"""Damaged files: reading ends at the damage, whose place is reported."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.errors import InputError
from edenmem.models.v1 import Outcome
from edenmem.store.v1 import streams
from tests.support.v1_files import write_dump
from tests.support.v1_plans import items_of
from tests.support.v1_world import memory, oid


def _episodes(count: int) -> list[bytes]:
    return [bson.encode(memory(n, "episode", f"episode {n}")) for n in range(1, count + 1)]


def _read(raw: bytes) -> tuple[list[str], str, str]:
    """IDs of the documents, and place and problem of the damage at which reading ended."""
    good: list[str] = []
    try:
        for _, document in streams.frames(BytesIO(raw)):
            good.append(str(streams.decode(document)[0]["_id"]))
    except streams.Damaged as damage:
        return good, damage.place, damage.problem
    return good, "", ""


def _ids(*numbers: int) -> list[str]:
    return [str(oid(number, number / 10)) for number in numbers]


class TestBson:
    @pytest.mark.parametrize("length", [0, 3, 60, 2**25 + 1, 2**31 - 1, 2**32 - 1])
    def test_a_wrong_length_ends_reading(self, length: int) -> None:
        first, second, third = _episodes(3)
        damaged = length.to_bytes(4, "little") + second[4:]
        good, place, problem = _read(first + damaged + third)
        assert (good, place) == (_ids(1), f"byte {len(first):,}")
        assert "not BSON" in problem

    def test_unreadable_documents_do_not_end_reading(self, tmp_path: Path) -> None:
        """A wrong byte inside one, and one that is longer than MongoDB allows."""
        first, second, third = _episodes(3)
        wrong = second.replace(b"\x02content\x00", b"\x99content\x00")
        huge = bson.encode(memory(7, "episode", "x" * (streams.MAX_BYTES + 1)))
        write_dump(tmp_path, {"memory_sessions": [first, wrong, huge, third]})
        items = items_of(tmp_path)
        bad = [item for item in items if item.outcome is Outcome.BAD]
        problems = {p.document_id: p.detail for item in bad for p in item.problems}
        assert sorted(problems) == sorted(_ids(2, 7))
        assert f"@{len(first)}" in problems[_ids(2)[0]]
        assert "16 MB" in problems[_ids(7)[0]]
        assert len(items) == 4

    def test_a_file_that_ends_early(self) -> None:
        first, second = _episodes(2)
        for end in range(1, len(second)):
            good, place, _ = _read(first + second[:end])
            assert (good, place) == (_ids(1), f"byte {len(first):,}")

    def test_an_empty_file(self) -> None:
        assert _read(b"") == ([], "", "")

    @settings(max_examples=60)
    @given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 3))
    def test_any_bytes_come_to_an_end(self, noise: bytes, place: int, kept: int) -> None:
        """Every byte is read, or the damage is named."""
        raw = b"".join(_episodes(kept))
        raw = raw[:place] + noise + raw[place:]
        read, is_damaged = b"", False
        try:
            for _, document in streams.frames(BytesIO(raw)):
                read += document
        except streams.Damaged:
            is_damaged = True
        assert raw.startswith(read)
        assert is_damaged is (read != raw)


class TestJson:
    def _read(self, text: str) -> list[Any]:
        return [value for _, value in streams.documents(BytesIO(text.encode()))]

    def _damage(self, text: str) -> tuple[list[Any], streams.Damaged]:
        found: list[Any] = []
        with pytest.raises(streams.Damaged) as caught:
            found.extend(value for _, value in streams.documents(BytesIO(text.encode())))
        return found, caught.value

    @pytest.mark.parametrize(
        "text",
        [
            '{"_id": 1}\n{"_id": 2}\n',
            '[{"_id": 1}, {"_id": 2}]',
            '[\n  {\n    "_id": 1\n  },\n  {"_id": 2}\n]\n',
            '{"_id": 1}{"_id": 2}',
            '\ufeff{"_id": 1}\r\n\r\n{"_id": 2}',
        ],
    )
    def test_forms(self, text: str) -> None:
        assert self._read(text) == [{"_id": 1}, {"_id": 2}]

    @pytest.mark.parametrize("broken", ['{"_id": 2, "a": }', "{2}", "nonsense"])
    def test_a_broken_line_ends_reading(self, broken: str) -> None:
        _, damage = self._damage(f'{{"_id": 1}}\n{broken}\n{{"_id": 3}}\n')
        assert damage.place == "line 2, byte 11"

    @pytest.mark.parametrize(
        "text",
        ['{"_id": ObjectId("5f"), "a": 1}', '{\n  _id: ObjectId("5f")}', '{"a": ISODate("x")}'],
    )
    def test_the_syntax_of_the_shell_is_named(self, text: str) -> None:
        with pytest.raises(InputError, match="syntax of the mongo shell") as caught:
            self._read(text)
        assert "mongoexport" in (caught.value.hint or "")

    def test_cut_anywhere_a_document_lacks_its_end(self) -> None:
        whole = (
            '{"_id": {"$oid": "5f0000000000000000000001"}, "a": [1, -2.5e+3, true, null, '
            '"\\u00e9\\n\\"x"], "b": {}, "c": {"$numberDouble": "NaN"}, "d": false}'
        )
        assert len(self._read(whole)) == 1
        for end in range(1, len(whole)):
            found, damage = self._damage(whole[:end])
            assert (found, damage.is_cut) == ([], True), whole[:end]

    def test_documents_longer_than_what_is_read_at_once(self) -> None:
        long = "x" * 3_000_000
        values = self._read(f'{{"_id": 1, "a": "{long}"}}\n{{"_id": 2}}')
        assert [len(str(value)) > 100 for value in values] == [True, False]

    def test_special_values_that_are_none(self) -> None:
        assert self._read('{"_id": {"$oid": "zz"}}') == [{"_id": {"$oid": "zz"}}]
