"""What the command line prints, and what it leaves in the store, as it was frozen.

``EDENMEM_GOLDEN=write`` writes what is compared with. Every change to it is listed with its reason
in ``CHANGES.md`` beside this file.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.golden.day import FORMATS, ROOT, Clock, Day, environment, steady
from tests.golden.script import live_through

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "transcripts"
#: The formats that commands with rows are run in: they print the same rows whatever the store.
_SHOWN = {"sqlite": FORMATS, "mongodb": FORMATS[:2]}
#: Read here, since tests run in a bare environment.
WRITING = os.environ.get("EDENMEM_GOLDEN") == "write"


@pytest.mark.parametrize("kind", ["sqlite", "mongodb"])
def test_the_scripted_day_is_as_it_was(
    kind: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    # Lines are broken by the length of a path, so this one is as long on every machine.
    tmp_path = Path(tempfile.mkdtemp(prefix="golden-", dir="/tmp"))
    request.addfinalizer(lambda: shutil.rmtree(tmp_path))
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    uri, second = f"sqlite:///{tmp_path}/memory.db", f"sqlite:///{tmp_path}/second.db"
    if kind == "mongodb":
        server = request.getfixturevalue("secantus_uri")
        uri, second = f"{server.rstrip('/')}/golden", f"{server.rstrip('/')}/golden_second"
    clock = Clock()
    steady(monkeypatch, clock)
    with environment(monkeypatch, uri, tmp_path):
        day = Day(uri, second, tmp_path, clock, _SHOWN[kind])
        live_through(day)
    texts = {name: "\n\n".join(parts) + "\n" for name, parts in day.chapters.items()}
    if WRITING:
        _write(texts, kind)
    wrong: list[str] = []
    for name, text in texts.items():
        was = _read(kind, name)
        if text != was:
            wrong += difflib.unified_diff(
                was.splitlines(), text.splitlines(), name, "now", n=1, lineterm=""
            )
    assert not wrong, "\n".join(wrong[:400])


def _read(kind: str, name: str) -> str:
    """The transcript of a chapter: the one of SQLite, where MongoDB has none that differs."""
    own = FOLDER / kind / f"{name}.txt"
    return own.read_text("utf-8") if own.exists() else _common(kind, name)


def _common(kind: str, name: str) -> str:
    """The transcript of SQLite, in the formats that are shown on a store of this kind."""
    text = (FOLDER / "sqlite" / f"{name}.txt").read_text("utf-8")
    left_out = tuple(f"--format {each}" for each in FORMATS if each not in _SHOWN[kind])
    parts = re.split(r"\n\n(?=\$ edenmem )", text.removesuffix("\n"))
    return "\n\n".join(p for p in parts if not p.splitlines()[0].endswith(left_out)) + "\n"


def _write(texts: dict[str, str], kind: str) -> None:
    (FOLDER / kind).mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        own = FOLDER / kind / f"{name}.txt"
        own.unlink(missing_ok=True)
        if kind == "sqlite" or text != _common(kind, name):
            own.write_text(text, "utf-8")
