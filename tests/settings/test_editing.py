"""Changing one setting leaves the rest of a configuration file as it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edenmem.errors import ConfigError
from edenmem.settings.load import edit_setting, load_settings

WRITTEN = """# ours
[search]  # how we search
top_k = 10   # ten

[profiles.lap.store]
uri = "sqlite:///lap.db"
"""


def test_comments_stay_and_the_previous_value_is_returned(tmp_path: Path) -> None:
    file = tmp_path / "edenmem.toml"
    file.write_text(WRITTEN)
    file.chmod(0o640)
    assert edit_setting(file, "search.top_k", "20") == (10, 20)
    assert file.read_text() == WRITTEN.replace("= 10 ", "= 20 ")
    assert file.stat().st_mode & 0o777 == 0o640
    assert edit_setting(file, "search.top_k", None) == (20, None)
    assert file.read_text() == WRITTEN.replace("top_k = 10   # ten\n", "")
    assert edit_setting(file, "llm.timeout_seconds", None) == (None, None)


def test_every_kind_of_value_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "new" / "edenmem.toml"
    values = {
        "store.read_only": "true",
        "store.connect_timeout_seconds": "1.5",
        "scopes.user.word_limit": "400",
        "search.recipe": "convex+mmr",
        "llm.prices": '{"a model": [1, 2.5]}',
    }
    for key, text in values.items():
        edit_setting(file, key, text)
    edit_setting(file, "scopes.user.word_limit", "300", profile="a phone")
    assert file.stat().st_mode & 0o777 == 0o600
    loaded = load_settings(config=file, environ={})
    assert {key for key, origin in loaded.origins.items() if origin == str(file)} == set(values)
    assert loaded.settings.llm.prices == {"a model": (1, 2.5)}
    small = load_settings(config=file, environ={}, profile="a phone").settings
    assert small.scopes.user.word_limit == 300


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("search.topk", "1", "unknown setting"),
        ("search.top_k", "none", "must be a whole number"),
        ("search.recipe", "convex", "is not valid TOML"),
    ],
)
def test_a_mistake_changes_nothing(tmp_path: Path, key: str, text: str, words: str) -> None:
    file = tmp_path / "edenmem.toml"
    file.write_text("[search")
    with pytest.raises(ConfigError, match=words):
        edit_setting(file, key, text)
    assert file.read_text() == "[search"
    assert list(tmp_path.iterdir()) == [file]


def test_a_value_that_could_not_be_loaded_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "edenmem.toml"
    file.write_bytes(b"[search]\r\ntop_k = 5\r\n")
    with pytest.raises(ConfigError, match="nonsense") as caught:
        edit_setting(file, "store.uri", "nonsense")
    assert f"{file}:" in caught.value.message
    edit_setting(file, "search.top_k", "7")
    assert file.read_bytes() == b"[search]\r\ntop_k = 7\r\n"
    assert list(tmp_path.iterdir()) == [file]


def test_edits_at_once_are_all_kept(tmp_path: Path) -> None:
    file = tmp_path / "edenmem.toml"
    values = {"search.top_k": "7", "llm.concurrency": "3", "embedding.batch_size": "9"}

    def edit(pair: tuple[str, str]) -> None:
        for _ in range(5):
            edit_setting(file, *pair)

    with ThreadPoolExecutor() as pool:
        list(pool.map(edit, values.items()))
    loaded = load_settings(config=file, environ={})
    assert {key for key, origin in loaded.origins.items() if origin != "default"} == {*values}


def test_a_symbolic_link_stays(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("")
    link = tmp_path / "edenmem.toml"
    link.symlink_to("real.toml")
    edit_setting(link, "search.top_k", "5")
    assert link.is_symlink()
    assert "top_k = 5" in (tmp_path / "real.toml").read_text()
