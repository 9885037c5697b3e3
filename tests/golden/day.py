"""A scripted day at the command line, on one store, and what it leaves behind.

Every command is run in this process, with a clock that moves one second for each command and one
millisecond for each look at it, and with ids that count up. What still may differ between two
runs that do the same (ids, times, durations) is replaced before it is compared.
"""

from __future__ import annotations

import datetime as datetimes
import io
import itertools
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edenmem.cli.app.root import run
from edenmem.models import ids

ROOT = Path(__file__).parents[2]
FORMATS = ("table", "json", "jsonl", "csv", "markdown")

_START = datetimes.datetime(2026, 11, 20, 12, 0, tzinfo=datetimes.UTC)


class Clock:
    """Stands in for `datetime` and `time` in `edenmem.models.ids`."""

    def __init__(self) -> None:
        self._moment = _START

    def skip(self, **delta: float) -> None:
        """Let time pass."""
        self._moment += datetimes.timedelta(**delta)

    def now(self, zone: datetimes.tzinfo | None = None) -> datetimes.datetime:
        """The time, a millisecond later at each look."""
        self.skip(milliseconds=1)
        return self._moment if zone is None else self._moment.astimezone(zone)

    def time(self) -> float:
        """Seconds since 1970."""
        return self._moment.timestamp()


def steady(patch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Take the chance out of times and ids."""

    class Now(datetimes.datetime):
        @classmethod
        def now(cls, tz: datetimes.tzinfo | None = None) -> datetimes.datetime:  # type: ignore[override]
            return clock.now(tz)

    patch.setattr(ids, "datetime", Now)
    patch.setattr(ids, "time", clock)
    patch.setattr(ids, "_counter", itertools.count(1))
    patch.setattr(ids, "_process", bytes(5))


class Day:
    """Runs commands and keeps a transcript of them."""

    def __init__(
        self, uri: str, second: str, folder: Path, clock: Clock, formats: Sequence[str]
    ) -> None:
        self.uri = uri
        self.second = second
        self.folder = folder
        self.clock = clock
        self.shown = formats
        self.chapters: dict[str, list[str]] = {}
        self._chapter: list[str] = []
        self._labels: dict[str, str] = {}

    @contextmanager
    def elsewhere(self, uri: str) -> Iterator[None]:
        """Work on another store for a while."""
        home = os.environ["EDENMEM_URI"]
        os.environ["EDENMEM_URI"] = uri
        try:
            yield
        finally:
            os.environ["EDENMEM_URI"] = home

    def chapter(self, name: str) -> None:
        """What follows goes into the transcript of this name."""
        self._chapter = self.chapters.setdefault(name, [])

    def __call__(self, line: str, *, stdin: str = "") -> str:
        """Run ``line``, words as a shell has them; what it printed to stdout."""
        code, out, err = self._run(shlex.split(line), stdin)
        shown = [f"$ edenmem {line}"]
        if code:
            shown.append(f"[exit {code}]")
        shown += [f"  {text}".rstrip() for text in out.splitlines()]
        shown += [f"! {text}".rstrip() for text in err.splitlines()]
        self._chapter.append("\n".join(self._normal(text) for text in shown))
        return out

    def formats(self, line: str) -> None:
        """Run ``line`` once for each output format."""
        for name in self.shown:
            self(line if name == "table" else f"{line} --format {name}")

    def json(self, line: str) -> Any:
        """The data that ``line`` prints; not in the transcript."""
        code, out, err = self._run([*shlex.split(line), "--format", "json"], "")
        assert not code, f"{line}: {err}"
        return json.loads(out)

    def _run(self, words: list[str], stdin: str) -> tuple[int, str, str]:
        self.clock.skip(seconds=1)
        out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
        before = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = run(words)
        finally:
            sys.stdin = before
        return code, *(stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined, return-value]

    def remains(self, documents: Iterator[tuple[str, Any]]) -> None:
        """Put what is stored into the transcript: (table, document) in any order."""
        lines = []
        for table, document in documents:
            text = json.dumps(document, sort_keys=True, ensure_ascii=False, default=_readable)
            lines.append(f"{table}: {self._stored(text)}")
        self._chapter.append("\n".join(sorted(lines)))

    # -- what may differ -----------------------------------------------------------------------

    def _stored(self, text: str) -> str:
        """Ids that no command has shown have no order, and so no number."""
        known = lambda found: self._labels.get(found[0], "<id>")  # noqa: E731
        text = re.sub(r"\b[0-9a-f]{24}\b", known, text)
        text = re.sub(r"\b1[67]\d{11}\b", "<time>", text)
        return self._normal(text)

    def _normal(self, text: str) -> str:
        for path in (str(self.folder), str(self.folder).replace("_", "\\_")):
            text = text.replace(path, "<folder>")
        text = text.replace(str(ROOT), "<root>").replace(self.uri, "<uri>")
        for pattern, replacement in _CHANCE:
            text = re.sub(pattern, replacement, text)
        text = re.sub(r"\b[0-9a-f]{24}\b", lambda found: self._label(found[0]), text)
        text = re.sub(r"\b(?=[0-9a-f]*[0-9])[0-9a-f]{7,23}\b", self._prefix, text)
        return re.sub(r" {2,}|─{2,}|-{3,}", "  ", text)

    def _label(self, identifier: str) -> str:
        return self._labels.setdefault(identifier, f"<#{len(self._labels) + 1}>")

    def _prefix(self, found: re.Match[str]) -> str:
        fitting = [label for known, label in self._labels.items() if known.startswith(found[0])]
        return fitting[0] if fitting else f"<{'x' * len(found[0])}>"


def _readable(value: object) -> object:
    """What JSON lacks; stored snapshots have times in them that must be seen to be left out."""
    if isinstance(value, bytes):
        with suppress(msgspec.DecodeError):
            return msgspec.msgpack.decode(value)
    return str(value)


def _time(found: re.Match[str]) -> str:
    """Times of the scripted day, and those reckoned from them, to the millisecond, are left out;
    those of the examples are kept."""
    own = found[2] is not None or found[0].startswith(("2026-11-2", "2026-12"))
    return "<time>" if own else found[0]


#: What two runs that do the same may print differently, and what stands in its place.
_CHANCE: tuple[tuple[str, Any], ...] = (
    (r"mongodb://[^\s\"')]+", "<mongodb>"),
    (r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( ?(Z|UTC|\+00:00))?", _time),
    (r"\b\d+(\.\d+)? (ms|s)\b", "<duration>"),
    (r"SQLite \d[\d.]*\d", "SQLite <version>"),
    (r"\b[\d.]+ [kKMG]?B\b", "<size>"),
    (r'(size_bytes[\\"]*: ?)\d+', r"\1<n>"),
    (r"\b[\d,.]+ items/s", "<rate>"),
    (r"\bin \d+[dhm]\b", "<soon>"),
    (r'(seconds[\\"]*: ?)\d+\.\d+', r"\1<n>"),
    (r'("(?:total|vectors|candidates|[a-z_]*_?(?:ms|seconds))": )\d+(\.\d+)?', r"\1<n>"),
    (r"<duration>, <rate>", "<duration>"),  # what is too quick has no rate
    (r"\b[0-9a-f]{64}\b", "<sha256>"),
    (r'("blocks": )\[[^]]*\]', r"\1<hashes>"),  # of ids
)


@contextmanager
def environment(patch: pytest.MonkeyPatch, uri: str, folder: Path) -> Iterator[None]:
    """A person's shell, without anything of the machine's."""
    for name in [name for name in os.environ if name.startswith(("EDENMEM_", "OPENAI_"))]:
        patch.delenv(name)
    values = {
        "EDENMEM_URI": uri,
        "EDENMEM_ACTOR": "operator",
        "EDENMEM_EMBEDDING_PROVIDER": "none",
        "EDENMEM_LLM_PROVIDER": "replay",
        "EDENMEM_LLM_REPLAY": str(ROOT / "examples" / "community" / "answers.jsonl"),
        "EDENMEM_LLM_CONCURRENCY": "1",
        "EDENMEM_COLD_CONCURRENCY": "1",
        "EDENMEM_CONSOLIDATION_CONCURRENCY": "1",
        "EDENMEM_FORMATION_DEDUP": "false",
        "HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "XDG_CACHE_HOME": str(folder),
        "COLUMNS": "100",
        "TZ": "UTC",
    }
    for name, value in values.items():
        patch.setenv(name, value)
    patch.chdir(folder)
    patch.setattr("socket.gethostname", lambda: "host")
    yield
