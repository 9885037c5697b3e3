"""Sources of settings, and the errors of invalid ones."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.pretty import Pretty

from edenmem.errors import ConfigError, ExitCode
from edenmem.models.scope import ScopeKind
from edenmem.settings import keys
from edenmem.settings.load import LoadedSettings, effective, load_settings
from edenmem.settings.schema import SECRETS, Settings

SECRET = "sk-topsecretkey"


class Machine:
    """A home, a working folder and an environment."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "work"
        self.cwd.mkdir()
        self.home = root / "home"
        self.environ = {"HOME": str(self.home), "PATH": "/bin"}
        self.folder_file = self.cwd / "edenmem.toml"
        self.user_file = self.home / ".config" / "edenmem" / "edenmem.toml"

    def folder(self, text: str) -> None:
        self._write(self.folder_file, text)

    def user(self, text: str) -> None:
        self.user_file.parent.mkdir(parents=True, exist_ok=True)
        self._write(self.user_file, text)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        path.chmod(0o600)

    def load(self, **options: Any) -> LoadedSettings:
        return load_settings(cwd=self.cwd, environ=self.environ, **options)

    def fails(self, words: str, **options: Any) -> str:
        """Load settings that must fail, and return the hint of the error."""
        with pytest.raises(ConfigError, match=words) as caught:
            self.load(**options)
        assert caught.value.exit_code is ExitCode.USAGE
        return caught.value.hint or ""


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_configuration_all_values_are_defaults(machine: Machine) -> None:
    loaded = machine.load()
    assert loaded.settings == Settings()
    assert set(loaded.origins.values()) == {"default"}
    assert list(loaded.origins) == list(keys.defaults())
    assert (loaded.profile, loaded.files, loaded.warnings) == (None, (), ())


# -- precedence ----------------------------------------------------------------------------------


def test_each_source_is_stronger_than_those_below_it(machine: Machine) -> None:
    def top_k(expected: int, origin: str, **options: Any) -> None:
        loaded = machine.load(**options)
        assert loaded.settings.search.top_k == expected
        assert loaded.origins["search.top_k"] == origin

    top_k(10, "default")
    machine.user("search.top_k = 11\n[profiles.x.search]\ntop_k = 12")
    top_k(11, str(machine.user_file))
    top_k(12, f"{machine.user_file} [profiles.x]", profile="x")
    machine.folder("[search]\ntop_k = 13\n[profiles.x.search]\ntop_k = 14")
    top_k(13, str(machine.folder_file))
    top_k(14, f"{machine.folder_file} [profiles.x]", profile="x")
    machine.environ["EDENMEM_SEARCH_TOP_K"] = "15"
    top_k(15, "EDENMEM_SEARCH_TOP_K", profile="x")
    top_k(16, "--set", profile="x", overrides={"search.top_k": "16"})


def test_files_are_merged_key_by_key(machine: Machine) -> None:
    machine.user('llm.fast_model = "small"\nllm.slow_model = "large"')
    machine.folder('[llm]\nfast_model = "tiny"')
    loaded = machine.load()
    assert loaded.settings.llm.fast_model == "tiny"
    assert loaded.settings.llm.slow_model == "large"
    assert loaded.files == (machine.folder_file, machine.user_file)


@pytest.mark.parametrize("named_by", ["option", "environment", "relative"])
def test_a_named_file_replaces_both(machine: Machine, named_by: str) -> None:
    machine.user("search.top_k = 11")
    machine.folder("search.top_k = 12")
    other = machine.cwd / "other.toml"
    other.write_text("search.depth = 50")
    if named_by == "environment":
        machine.environ["EDENMEM_CONFIG"] = str(other)
        loaded = machine.load()
    else:
        loaded = machine.load(config=Path("other.toml") if named_by == "relative" else other)
    assert (loaded.settings.search.top_k, loaded.settings.search.depth) == (10, 50)
    assert loaded.files == (other,)


def test_a_missing_named_file_is_an_error(machine: Machine) -> None:
    machine.fails("configuration file not found: .*none.toml", config=Path("none.toml"))


def test_the_users_file_is_in_the_platforms_folder(machine: Machine, tmp_path: Path) -> None:
    machine.environ["XDG_CONFIG_HOME"] = str(tmp_path / "xdg")
    (tmp_path / "xdg" / "edenmem").mkdir(parents=True)
    (tmp_path / "xdg" / "edenmem" / "edenmem.toml").write_text("search.top_k = 21")
    assert machine.load().settings.search.top_k == 21
    machine.environ["XDG_CONFIG_HOME"] = "relative/is/ignored"
    assert machine.load().settings.search.top_k == 10


def test_working_in_the_users_own_folder_reads_the_file_once(machine: Machine) -> None:
    machine.user("search.top_k = 21")
    machine.cwd = machine.user_file.parent
    assert machine.load().files == (machine.user_file,)


def test_one_limit_of_one_scope_does_not_change_the_others(machine: Machine) -> None:
    machine.folder("[scopes.user]\nword_limit = 200")
    machine.environ["EDENMEM_SCOPES_AGENT_CONSOLIDATE_AT"] = "3"
    scopes = machine.load().settings.scopes
    assert (scopes.user.word_limit, scopes.user.consolidate_at) == (200, 4)
    assert (scopes.agent.word_limit, scopes.agent.consolidate_at) == (1200, 3)
    assert scopes.shard == Settings().scopes.shard


# -- profiles ------------------------------------------------------------------------------------

PROFILES = """
default_profile = "home"
search.top_k = 20
[profiles.home]
search.depth = 30
[profiles.prod.store]
uri = "mongodb+srv://db.example.com/eden"
"""


def test_a_profile_is_chosen_by_option_environment_or_default(machine: Machine) -> None:
    machine.folder(PROFILES)
    loaded = machine.load()
    assert (loaded.profile, loaded.settings.search.depth) == ("home", 30)
    machine.environ["EDENMEM_PROFILE"] = "prod"
    loaded = machine.load()
    assert loaded.profile == "prod"
    assert loaded.settings.store.uri == "mongodb+srv://db.example.com/eden"
    assert (loaded.settings.search.top_k, loaded.settings.search.depth) == (20, 50)
    assert machine.load(profile="home").settings.search.depth == 30


def test_an_unknown_profile_is_an_error_that_lists_them(machine: Machine) -> None:
    assert "no configuration file" in machine.fails("unknown profile: 'prd'", profile="prd")
    machine.folder(PROFILES)
    machine.user("[profiles.lab]")
    assert machine.fails("unknown profile: 'prd'", profile="prd") == "profiles: home, lab, prod"


# -- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("[llm]\nmodle = 'x'", r"unknown setting 'llm\.modle'", None),
        (
            "[llm]\nfast_modle = 'x'",
            r"unknown setting 'llm\.fast_modle'",
            "did you mean llm.fast_model?",
        ),
        (
            "llm.model = 'x'",
            r"unknown setting 'llm\.model'",
            "did you mean llm.fast_model, llm.slow_model or llm.premium_model?",
        ),
        ("[lmm]\nfast_model = 'x'", "unknown setting 'lmm'", "did you mean llm?"),
        ("base_url = 'x'", "unknown setting 'base_url'", "did you mean llm.base_url?"),
        (  # its earlier name
            "formation.dedup_neighbours = 3",
            r"unknown setting 'formation\.dedup_neighbours'",
            "did you mean formation.dedup_neighbors?",
        ),
        ("xyzzy = 1", "unknown setting 'xyzzy'", "list settings: edenmem config show"),
        ("'llm.base_url' = 'x'", r"unknown setting 'llm\.base_url'", None),
        (
            "[scopes.usr]\nword_limit = 3",
            r"unknown setting 'scopes\.usr'",
            "did you mean scopes.user?",
        ),
        ("[profiles.a.llm]\nx = 1", r"\[profiles\.a\]: unknown setting 'llm\.x'", None),
        ("[profiles.a.profiles.b]", "unknown setting 'profiles'", None),
        ("llm = 3", r"llm must be a table, \[llm\]", None),
        ("profiles = 3", r"profiles must be tables", None),
        ("profiles.a = 3", r"profiles must be tables", None),
        ("default_profile = 3", "default_profile must be the name of a profile", None),
        (
            "search.top_k = '5'",
            r"search\.top_k must be a whole number from 1 to 100, not '5'",
            None,
        ),
        ("search.top_k = 5.5", "must be a whole number from 1 to 100, not 5.5", None),
        ("search.top_k = 0", "must be a whole number from 1 to 100, not 0", None),
        ("search.top_k = true", "must be a whole number from 1 to 100, not True", None),
        (
            "search.recipe = 'rff'",
            r"must be convex, rrf, semantic or text, or one of them with \+rerank.*, not 'rff'",
            None,
        ),
        ("search.recipe = 'rrf+mrr'", r"\+recency or \+mmr.*, not 'rrf\+mrr'", None),
        ("formation.dedup = 'yes'", "must be true or false, not 'yes'", None),
        ("llm.timeout_seconds = 0", "must be a number above 0, not 0", None),
        ("llm.timeout_seconds = inf", "must be a number above 0, not inf", None),
        ("llm.max_cost = nan", "must be a number of at least 0, not nan", None),
        ("llm.fast_model = 5", "llm.fast_model must be text, not 5", None),
        ("llm.prices.x = 5", r"must be a table of model = \[input price, output price\]", None),
        ("embedding.prices.x = 'a'", "must be a table of model = price", None),
        ("\nllm = 'x' y", "is not valid TOML: .*line 2", None),
        ("store.uri = 'redis://u:hunter2@h'", r"invalid store URI 'redis://u:\*\*\*@h'", None),
    ],
)
def test_an_invalid_file_gives_its_path_key_and_expected_value(
    machine: Machine, text: str, words: str, hint: str | None
) -> None:
    machine.folder(text)
    given_hint = machine.fails(words)
    with pytest.raises(ConfigError, match=str(machine.folder_file)):
        machine.load()
    if hint is not None:
        assert given_hint == hint


def test_a_deeply_nested_file_is_an_error(machine: Machine) -> None:
    """FAILURES 124: called a bug, or parsed for half a minute."""
    machine.folder("a = " + "[" * 5000 + "]" * 5000)
    machine.fails("has values nested too deeply")
    machine.folder("a = " + "{a = " * 5000 + "1" + "}" * 5000)
    machine.fails("has values nested too deeply")
    for key in ("a", '"a.b c"', "'x'"):
        deep = " . ".join([key] * 40)
        for text in (f"{deep} = 1", f"[{deep}]", f"a = {{{deep} = 1}}"):
            machine.folder(text)
            machine.fails("has a key of more than 32 parts")
    machine.folder(f"""[llm]\nbase_url = "https://{"a." * 30}com" # {"...." * 90}""")
    machine.load()


def test_an_unreadable_file_is_an_error(machine: Machine) -> None:
    machine.folder_file.write_bytes(b"\xff\xfe")
    machine.fails("is not UTF-8")
    machine.folder_file.write_bytes(b"#" * 1024 * 1024)
    machine.load()
    machine.folder_file.write_bytes(b"#" * (1024 * 1024 + 1))
    machine.fails("is larger than 1024 KiB")
    machine.folder_file.unlink()
    machine.folder_file.symlink_to("/dev/zero")
    machine.fails("is larger than 1024 KiB")
    machine.folder_file.unlink()
    machine.folder_file.mkdir()
    machine.fails("cannot read .*: Is a directory")


@pytest.mark.parametrize(
    ("name", "value", "words", "hint"),
    [
        (
            "EDENMEM_LLM_FAST_MODLE",
            "x",
            "unknown environment variable 'EDENMEM_LLM_FAST_MODLE'",
            "LLM_FAST_MODEL?",
        ),
        (
            "EDENMEM_STORE_URI",
            "x",
            "unknown environment variable 'EDENMEM_STORE_URI'",
            "EDENMEM_URI?",
        ),
        (
            "EDENMEM_PROFIL",
            "x",
            "unknown environment variable 'EDENMEM_PROFIL'",
            "EDENMEM_PROFILE?",
        ),
        ("EDENMEM_SEARCH_TOP_K", "ten", "EDENMEM_SEARCH_TOP_K: search.top_k must be a whole", ""),
        ("EDENMEM_FORMATION_DEDUP", "maybe", "must be true or false, not 'maybe'", ""),
        ("EDENMEM_LLM_PRICES", "{", "must be a table of model", ""),
        ("EDENMEM_LLM_PRICES", "[1]", "must be a table of model", ""),
        ("EDENMEM_LLM_PRICES", "\udc80", "must be a table of model", ""),
    ],
)
def test_an_invalid_variable_is_named(
    machine: Machine, name: str, value: str, words: str, hint: str
) -> None:
    machine.environ[name] = value
    assert machine.fails(words).endswith(hint)


def test_an_invalid_flag_is_named(machine: Machine) -> None:
    hint = machine.fails("--set: unknown setting 'search.topk'", overrides={"search.topk": "3"})
    assert hint == "did you mean search.top_k?"
    machine.fails("--set: search.top_k must be", overrides={"search.top_k": "x"})


def test_edenmem_variables_that_are_no_settings_are_accepted(machine: Machine) -> None:
    machine.environ |= {"EDENMEM_ACTOR": "cron", "EDENMEM_PROFILE": "", "EDENMEM_CONFIG": ""}
    assert machine.load().settings == Settings()


# -- the environment -----------------------------------------------------------------------------


def test_every_setting_has_one_variable_and_every_variable_one_setting() -> None:
    names = keys.environment_names()
    assert sorted(names.values()) == sorted(keys.defaults())


_CHANGED: dict[type, Callable[[Any], object]] = {
    str: lambda value: f"{value}x",
    int: lambda value: value + 1,
    float: lambda value: value / 2 + 0.125,
    bool: lambda value: not value,
    dict: lambda value: {"m": [1.5, 2.0]},
    tuple: lambda value: ["x"],
}


#: Values for settings that do not take any value of their type.
_SPECIAL: dict[str, Any] = {
    "store.uri": "sqlite:////x/y.db",
    "store.embedding_storage": "bindata",
    "llm.provider": "replay",
    "embedding.provider": "none",
    "embedding.local_model": "multilingual-e5-small",
    "embedding.prices": {"m": 2.5},
    "server.recall": "off",
    "server.users": {"anna@example.org": "anna"},
    "formation.extraction": "single",
    "formation.former": "platform",
    "formation.verify": "all",
    "formation.doubtful": "drop",
    "review.then": "accept",
    **{f"scopes.{kind}.review": "everything" for kind in ScopeKind},
    "context.recall": "llm",
    "search.recipe": "rrf+mmr",
    "search.rerank_scores": "logits",
    "search.semantic_floor": 0.5,
    "search.min_score": 0.5,
    **dict.fromkeys(keys.PATHS, "/x/y"),
}


def test_every_variable_sets_its_setting_alone(machine: Machine) -> None:
    for name, key in sorted(keys.environment_names().items()):
        default = keys.defaults()[key]
        value = _SPECIAL.get(key) or _CHANGED[type(default)](default)
        text = json.dumps(value) if isinstance(value, dict | list) else str(value)
        machine.environ[name] = text
        loaded = machine.load()
        del machine.environ[name]
        after = dict(keys.leaves(loaded.settings))
        assert {k for k in after if after[k] != keys.defaults()[k]} == {key}
        assert msgspec.to_builtins(after[key]) in (value, {"m": (1.5, 2.0)}, ("x",)), key
        assert {k for k, origin in loaded.origins.items() if origin != "default"} == {key}
        assert loaded.origins[key] == name


def test_an_empty_variable_is_unset(machine: Machine) -> None:
    machine.folder("search.top_k = 12")
    machine.environ["EDENMEM_SEARCH_TOP_K"] = ""
    assert machine.load().settings.search.top_k == 12


@given(st.integers(1, 100), st.floats(0, 1), st.booleans())
def test_numbers_mean_the_same_in_a_file_and_in_the_environment(
    tmp_path: Path, top_k: int, weight: float, dedup: bool
) -> None:
    path = tmp_path / "a.toml"
    path.write_text(
        f"search.top_k = {top_k}\nsearch.semantic_weight = {weight}\n"
        f"formation.dedup = {str(dedup).lower()}"
    )
    environ = {
        "HOME": str(tmp_path),
        "EDENMEM_SEARCH_TOP_K": str(top_k),
        "EDENMEM_SEARCH_SEMANTIC_WEIGHT": repr(weight),
        "EDENMEM_FORMATION_DEDUP": str(dedup).lower(),
    }
    by_file = load_settings(config=path, environ={}, cwd=tmp_path)
    by_environment = load_settings(environ=environ, cwd=tmp_path)
    assert by_file.settings == by_environment.settings


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.lists(st.none())))
def test_any_unknown_table_raises_one_error(table: dict[str, object]) -> None:
    if not table:
        assert keys.flatten(table, "f") == {}
        return
    with pytest.raises(ConfigError, match=r"^f: "):
        keys.flatten(table, "f")


# -- OpenAI's variables --------------------------------------------------------------------------


def test_openais_variables_fill_unset_settings(machine: Machine) -> None:
    machine.environ |= {"OPENAI_API_KEY": SECRET, "OPENAI_BASE_URL": "http://localhost:1/v1"}
    machine.folder('[llm]\napi_key = "sk-mine"')
    loaded = machine.load()
    settings = loaded.settings
    assert (settings.llm.api_key, settings.embedding.api_key) == ("sk-mine", SECRET)
    assert settings.llm.base_url == settings.embedding.base_url == "http://localhost:1/v1"
    assert loaded.origins["llm.api_key"] == str(machine.folder_file)
    assert loaded.origins["embedding.api_key"] == "OPENAI_API_KEY"
    assert loaded.origins["llm.base_url"] == "OPENAI_BASE_URL"
    assert loaded.settings.embedding.inherited == {"api_key", "base_url"}
    assert loaded.settings.llm.inherited == {"base_url"}


# -- keys and untrusted addresses ----------------------------------------------------------------


@pytest.mark.parametrize("section", ["llm", "embedding"])
def test_openais_key_is_not_sent_to_an_address_of_the_folder(
    machine: Machine, section: str
) -> None:
    machine.environ |= {"OPENAI_API_KEY": SECRET}
    machine.folder(f'[{section}]\nbase_url = "http://evil.example/v1"')
    loaded = machine.load()
    assert getattr(loaded.settings, section).api_key == ""
    assert loaded.origins[f"{section}.api_key"] == "default"
    named = machine.load(config=machine.folder_file)  # naming the file trusts it
    assert getattr(named.settings, section).api_key == SECRET


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("llm.api_key", "llm.base_url"),
        ("embedding.api_key", "embedding.base_url"),
        ("search.rerank_api_key", "search.rerank_url"),
    ],
)
@pytest.mark.parametrize("profile", ["", "profiles.work."])
def test_a_key_of_the_users_file_is_not_sent_to_an_address_of_the_folder(
    machine: Machine, key: str, address: str, profile: str
) -> None:
    machine.user(f'{key} = "{SECRET}"')
    machine.folder(
        f'default_profile = "work"\nprofiles.work.llm.concurrency = 2\n'
        f'{profile}{address} = "http://evil.example/v1"'
    )
    loaded = machine.load()
    assert {k: v for k, v, _ in effective(loaded)}[key] == ""
    assert SECRET not in json.dumps(msgspec.to_builtins(loaded.settings))
    [warning] = loaded.warnings
    assert key in warning
    assert address in warning
    assert SECRET not in warning


def test_a_key_is_sent_to_the_address_of_its_source(machine: Machine) -> None:
    machine.user(f'[llm]\nbase_url = "http://mine.example/v1"\napi_key = "{SECRET}"')
    assert machine.load().settings.llm.api_key == SECRET
    machine.folder('[llm]\nbase_url = "http://box.example/v1"\napi_key = "sk-folder"')
    assert machine.load().settings.llm.api_key == "sk-folder"
    machine.folder('[llm]\nbase_url = "http://box.example/v1"')
    machine.environ["EDENMEM_LLM_API_KEY"] = SECRET
    assert machine.load().settings.llm.api_key == SECRET
    assert machine.load().warnings == ()


# -- paths ---------------------------------------------------------------------------------------


def test_a_relative_path_starts_at_the_folder_of_its_file(machine: Machine) -> None:
    machine.user('llm.record = "kept.jsonl"\nstore.uri = "sqlite:///memory.db"')
    machine.environ["EDENMEM_LLM_REPLAY"] = "answers.jsonl"
    settings = machine.load().settings
    assert settings.llm.record == str(machine.user_file.parent / "kept.jsonl")
    assert settings.llm.replay == str(machine.cwd / "answers.jsonl")
    assert settings.store.uri == f"sqlite:///{machine.user_file.parent / 'memory.db'}"


# -- secrets -------------------------------------------------------------------------------------


def loaded_with_secrets(machine: Machine) -> LoadedSettings:
    machine.environ |= {
        "EDENMEM_URI": f"mongodb://ann:{SECRET}@db.example.com/eden?authSource=admin",
        "EDENMEM_LLM_BASE_URL": f"https://ann:{SECRET}@llm.example.com/v1",
        "EDENMEM_EMBEDDING_BASE_URL": f"https://e.example.com/v1?api-key={SECRET}&v=2",
        **{"EDENMEM_" + key.upper().replace(".", "_"): SECRET for key in SECRETS},
    }
    return machine.load()


def test_effective_settings_show_origins_and_no_secret(machine: Machine) -> None:
    rows = {key: (value, origin) for key, value, origin in effective(loaded_with_secrets(machine))}
    assert list(rows) == list(keys.defaults())
    assert rows["llm.api_key"] == ("***", "EDENMEM_LLM_API_KEY")
    assert rows["store.uri"][0] == "mongodb://ann:***@db.example.com/eden?authSource=admin"
    assert rows["embedding.base_url"][0] == "https://e.example.com/v1?api-key=***&v=2"
    assert rows["search.top_k"] == (10, "default")
    assert SECRET not in str(rows)
    assert dict.fromkeys(SECRETS, "") == {
        key: value for key, value, _ in effective(Machine(machine.cwd).load()) if key in SECRETS
    }


def test_secrets_are_masked_in_reprs_and_logs(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = loaded_with_secrets(machine)
    assert loaded.settings.llm.api_key == SECRET
    logging.getLogger("test").warning("settings: %s %r", loaded, loaded.settings.llm)
    console = Console(record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(Pretty(loaded, expand_all=True))
    console.file.close()
    assert "llm.example.com" in console.export_text()
    for text in (repr(loaded), str(loaded.settings), caplog.text, console.export_text(clear=False)):
        assert SECRET not in text


def test_an_error_about_a_secret_does_not_show_it(machine: Machine) -> None:
    machine.folder("llm.api_key = 12345678")
    with pytest.raises(ConfigError, match="api_key must be text") as caught:
        machine.load()
    assert "12345678" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        'llm.api_key = "k"',
        '[profiles.a.search]\nrerank_api_key = "k"',
        'store.uri = "mongodb://a:b@h/"',
    ],
)
def test_a_secret_readable_by_others_warns(machine: Machine, text: str) -> None:
    machine.folder(text)
    assert machine.load().warnings == ()
    machine.folder_file.chmod(0o640)
    (warning,) = machine.load().warnings
    assert f"chmod 600 {machine.folder_file}" in warning


def test_a_file_without_secrets_may_be_readable_by_all(machine: Machine) -> None:
    machine.folder('llm.api_key = ""\nstore.uri = "mongodb://h/"')
    machine.folder_file.chmod(0o644)
    assert machine.load().warnings == ()
