"""Files that are damaged: what can be read is read, the rest is reported with its place."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import bson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.models.v1 import Disposition
from edenmem.store.v1 import bson_stream, json_stream
from tests.support.v1_files import write_dump
from tests.support.v1_plans import items_of
from tests.support.v1_world import memory, oid


def _episodes(count: int) -> list[bytes]:
    return [bson.encode(memory(n, "episode", f"episode {n}")) for n in range(1, count + 1)]


def _read(raw: bytes) -> tuple[list[str], list[tuple[int, str]]]:
    """Ids of what can be read, and (place, id) of what cannot."""
    good, bad = [], []
    for frame in bson_stream.frames(BytesIO(raw)):
        try:
            if frame.problem:
                raise ValueError(frame.problem)
            document, _ = bson_stream.decode(frame.raw)
            good.append(str(document["_id"]))
        except ValueError:
            bad.append((frame.offset, bson_stream.id_in(frame.raw)))
    return good, bad


def _ids(*numbers: int) -> list[str]:
    return [str(oid(number, number / 10)) for number in numbers]


class TestBson:
    @pytest.mark.parametrize("length", [0, 3, 60, 2**20, 2**31 - 1, 2**32 - 1])
    def test_a_wrong_length(self, length: int) -> None:
        first, second, third, fourth = _episodes(4)
        damaged = length.to_bytes(4, "little") + second[4:]
        good, bad = _read(first + damaged + third + fourth)
        assert good == _ids(1, 3, 4)
        assert bad[0] == (len(first), *_ids(2))

    def test_a_wrong_byte_inside(self) -> None:
        first, second, third = _episodes(3)
        damaged = second.replace(b"\x02content\x00", b"\x99content\x00")
        good, bad = _read(first + damaged + third)
        assert (good, bad) == (_ids(1, 3), [(len(first), *_ids(2))])

    def test_bytes_in_between(self) -> None:
        first, second = _episodes(2)
        good, bad = _read(first + b"\xde\xad\xbe\xef" * 100 + second)
        assert (good, [place for place, _ in bad]) == (_ids(1, 2), [len(first)])

    def test_a_document_beyond_the_limit(self) -> None:
        first, second = _episodes(2)
        huge = bson.encode(memory(7, "episode", "x" * (bson_stream.MAX_BYTES + 1)))
        good, bad = _read(first + huge + second)
        assert (good, bad) == (_ids(1, 2), [(len(first), *_ids(7))])

    def test_a_file_that_ends_early(self) -> None:
        first, second = _episodes(2)
        for end in range(1, len(second)):
            good, bad = _read(first + second[:end])
            assert (good, [place for place, _ in bad]) == (_ids(1), [len(first)])

    def test_an_empty_file(self) -> None:
        assert _read(b"") == ([], [])

    @settings(max_examples=60)
    @given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 3))
    def test_any_bytes_come_to_an_end(self, noise: bytes, place: int, kept: int) -> None:
        """Every byte belongs to some frame, and no frame comes twice."""
        raw = b"".join(_episodes(kept))
        raw = raw[:place] + noise + raw[place:]
        offsets = [frame.offset for frame in bson_stream.frames(BytesIO(raw))]
        assert offsets == sorted(set(offsets))
        assert bool(offsets) == bool(raw)

    def test_what_cannot_be_read_is_an_item(self, tmp_path: Path) -> None:
        first, second, third = _episodes(3)
        damaged = b"\xff\xff\xff\x00" + second[4:]
        write_dump(tmp_path, {"memory_sessions": [first, damaged, third]})
        bad = [item for item in items_of(tmp_path) if item.disposition is Disposition.BAD]
        (problem,) = (problem for item in bad for problem in item.problems)
        assert problem.document_id == _ids(2)[0]
        assert f"@{len(first)}" in problem.detail


class TestJson:
    def _read(self, text: str | bytes) -> list[json_stream.Value]:
        raw = text.encode() if isinstance(text, str) else text
        return list(json_stream.documents(BytesIO(raw)))

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
        assert [value.document for value in self._read(text)] == [{"_id": 1}, {"_id": 2}]

    @pytest.mark.parametrize(
        "broken", ['{"_id": 2, "a": }', '{"_id": 2, "a": "no end', "{2}", '{"_id": 2', "nonsense"]
    )
    def test_goes_on_after_a_broken_line(self, broken: str) -> None:
        first, bad, last = self._read(f'{{"_id": 1}}\n{broken}\n{{"_id": 3}}\n')
        assert (first.document, bad.document, last.document) == ({"_id": 1}, None, {"_id": 3})
        assert bad.line == 2
        assert bad.problem

    def test_cut_anywhere_a_document_lacks_its_end(self) -> None:
        whole = (
            '{"_id": {"$oid": "5f0000000000000000000001"}, "a": [1, -2.5e+3, true, null, '
            '"\\u00e9\\n\\"x"], "b": {}, "c": {"$numberDouble": "NaN"}, "d": false}'
        )
        (value,) = self._read(whole)
        assert value.document is not None
        for end in range(1, len(whole)):
            (value,) = self._read(whole[:end])
            assert (value.document, value.ends_early) == (None, True), whole[:end]

    def test_documents_longer_than_what_is_read_at_once(self) -> None:
        long = "x" * 3_000_000
        values = self._read(f'{{"_id": 1, "a": "{long}"}}\n{{"_id": 2}}')
        assert [len(str(value.document)) > 100 for value in values] == [True, False]

    def test_special_values_that_are_none(self) -> None:
        (value,) = self._read('{"_id": {"$oid": "zz"}}')
        assert value.document == {"_id": {"$oid": "zz"}}
