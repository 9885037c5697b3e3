"""Names, prefixes, limits and what is missing."""

from __future__ import annotations

import re

import pytest

from edenmem.models.ids import derived_id
from edenmem.store.sqlite import SqliteStore
from tests.cli.conftest import LENA, MIRA, Cli
from tests.support.builders import make_session


@pytest.mark.parametrize(
    "command",
    [
        ("show", "nobody"),
        ("show", "nothing"),
        ("show", "0" * 24),
        ("history", "0" * 24),
        ("fact", "list", "--agent", "nobody"),
        ("fact", "list", "--agent", "mira", "--user", "nobody"),
        ("fact", "list", "--agent", "mira", "--shard", "nothing"),
        ("consolidation", "show", "--agent", "otto"),
        ("restore", "mira/user:lena", "--version", "9"),
        ("search", "x", "--agent", "nobody"),
        ("context", "nothing"),
        ("form", "nothing"),
        ("fact", "add", "--agent", "nobody", "--content", "x"),
        ("fact", "add", "--agent", "mira", "--user", "nobody", "--content", "x"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_exit_3_with_a_hint(command: tuple[str, ...], cli: Cli) -> None:
    result = cli(*command).fails(3)
    assert result.out == ""
    assert "hint: " in result.err


def test_an_ambiguous_prefix_lists_the_candidates(shared_cli: Cli) -> None:
    result = shared_cli("show", "f" * 8).fails(2, "3 matches", "f" * 23 + "1")
    assert result.err.endswith("  hint: use a longer ID prefix\n")  # facts have no name


def test_the_ids_of_a_table_can_be_typed_back(shared_cli: Cli) -> None:
    table = shared_cli("fact", "list", "--agent", "mira").ok().out.splitlines()
    for line in table[1:]:
        shared_cli("show", line.split()[0]).ok()


def test_without_a_user_no_users_facts_are_seen(shared_cli: Cli) -> None:
    """Known failure 4: a missing id is never a wider filter."""
    scopes = {fact["scope"] for fact in shared_cli.json("fact", "list", "--agent", "mira")}
    assert scopes == {"agent", "shard"}
    found = shared_cli.json("search", "whale", "walk", "--agent", "mira", "--no-track")
    assert {fact["scope"] for fact in found} == {"agent"}
    for command in (
        ("fact", "list", "--agent", "mira", "--scope", "user"),
        ("search", "whale", "--agent", "mira", "--scope", "user"),
        ("fact", "add", "--agent", "mira", "--scope", "user", "--content", "x"),
    ):
        refused = shared_cli(*command)
        assert refused.code == 2, command
        assert "--user" in refused.err


def test_with_a_user_their_facts_are_seen_and_no_other_agents(shared_cli: Cli) -> None:
    facts = shared_cli.json("fact", "list", "--agent", "mira", "--user", "lena", "-s", "user")
    assert {(fact["agent_id"], fact["user_id"]) for fact in facts} == {(MIRA, LENA)}
    assert shared_cli.json("fact", "list", "--agent", "otto", "--user", "lena") == []


def test_the_only_agent_is_taken_and_named(empty_cli: Cli) -> None:
    empty_cli("init", "--yes").ok()
    assert empty_cli("fact", "list").code == 3
    empty_cli("agent", "add", "mira").ok()
    assert "agent: mira, the only one" in empty_cli("fact", "list").ok().err
    empty_cli("user", "add", "lena").ok()
    chat = '[{"role": "user", "content": "I row."}]'
    assert "1 session" in empty_cli("import", "-", "--user", "lena", input=chat).ok().out


def test_history_and_diff_of_a_text(shared_cli: Cli) -> None:
    scope = ("--agent", "mira", "--user", "lena")
    versions = shared_cli.json("history", "mira/user:lena")
    assert [version["version"] for version in versions] == [1, 2]
    diff = shared_cli("consolidation", "diff", *scope).ok().out
    assert diff.startswith("--- version 1\n+++ version 2\n")
    assert "-Lena is new." in diff
    assert shared_cli("consolidation", "diff", *scope, "--from", "0", "--to", "1").ok().out
    assert shared_cli("consolidation", "diff", *scope, "--to", "7").code == 3


@pytest.mark.parametrize("listed", ["agent", "user", "session", "scope"])
def test_a_limit_beyond_all_numbers_is_no_limit(shared_cli: Cli, listed: str) -> None:
    rows = shared_cli.json(listed, "list", "--limit", "0")
    assert shared_cli.json(listed, "list", "--limit", "9999999999999999999") == rows


def test_reflections_are_listed_by_time(shared_cli: Cli) -> None:
    listed = ("reflection", "list", "--agent", "mira", "--scope", "agent")
    assert "Answers are short." in [each["content"] for each in shared_cli.json(*listed)]
    assert shared_cli.json(*listed, "--until", "2001-01-01") == []


def test_reflections_and_texts_are_searched_if_asked_for(shared_cli: Cli) -> None:
    both = ("search", "answers short", "--agent", "mira", "--in", "reflections, texts")
    found = shared_cli.json(*both)
    assert ("reflection", "Answers are short.") in {(hit["kind"], hit["content"]) for hit in found}
    table = shared_cli(*both).ok().out.splitlines()
    assert table[0].split() == ["kind", "score", "id", "scope", "when", "content"]
    wrong = shared_cli("search", "x", "--agent", "mira", "--in", "facts,dreams")
    assert (wrong.code, wrong.out) == (2, "")
    assert "--in takes facts, reflections, texts: 'facts,dreams'" in wrong.err


def test_search_shows_whole_facts_on_a_terminal(cli: Cli) -> None:
    long = "The lantern workshop at the old ferry hall is open on Tuesday and Thursday until nine."
    cli("fact", "add", "--agent", "mira", "--content", long).ok()
    screen = cli.on_terminal("search", "workshops", "--agent", "mira", columns=60).out
    assert "\x1b[1;33mworkshop\x1b[0m" in screen
    plain = " ".join(re.sub(r"\x1b\[[\d;]*m", "", screen).split())
    assert long in plain
    assert all(len(line) <= 60 for line in re.sub(r"\x1b\[[\d;]*m", "", screen).splitlines())


def test_what_search_found_cannot_write_to_the_terminal(cli: Cli) -> None:
    cli("fact", "add", "--agent", "mira", "--content", "A workshop \x1b[2J[red]x[/red] \x07").ok()
    screen = cli.on_terminal("search", "workshop", "--agent", "mira").out
    assert "\x1b[2J" not in screen
    assert "\x07" not in screen
    assert "[red]x[/red]" in screen


def test_a_long_table_goes_to_the_pager(cli: Cli) -> None:
    facts = [f"Lantern {number} hangs at the ferry hall." for number in range(60)]
    lines = "".join(
        f'{{"type":"fact","agent":"mira","scope":"agent","content":"{fact}"}}\n' for fact in facts
    )
    cli("import", "-", "--yes", input=lines).ok()
    pager = {"PAGER": "sed 's/^/paged: /'"}
    listing = ("fact", "list", "--agent", "mira")
    assert "paged: " in cli.on_terminal(*listing, "-n", "0", env=pager).out
    assert "paged: " not in cli.on_terminal(*listing, "-n", "5", env=pager).out
    assert "paged: " not in cli(*listing, "-n", "0", env=pager).ok().out


def test_a_chat_is_told_from_an_import_and_groups_are_listed(cli: Cli) -> None:
    store = SqliteStore(cli.file)
    for name, key in (("walk", "session"), ("quay", "chat")):
        made = make_session(
            [MIRA], [LENA], name=name, id=derived_id(key, name), imported=True, group_id="crew"
        )
        store.host.put_session(made)
    store.database.close()
    (crew,) = cli.json("group", "list", "--agent", "mira")
    assert (crew["id"], crew["users"], crew["sessions"]) == ("crew", [LENA], 2)
    listed = cli("session", "list").ok().out
    states = {line.split()[1]: line.split()[-1] for line in listed.splitlines()[1:]}
    assert (states["walk"], states["quay"]) == ("imported", "chat")


def test_why_not_names_the_scope_that_was_not_searched(shared_cli: Cli) -> None:
    facts = shared_cli.json("fact", "list", "--agent", "mira", "--user", "lena")
    fact = next(each for each in facts if each["scope"] == "user")
    asked = ("search", "lanterns", "--why-not", fact["id"])
    shown = shared_cli(*asked, "--agent", "mira").ok().out
    assert "in mira: user lena, which is not searched" in shown
    assert "add --user lena; include user in --scope, or omit --scope" in shown
    assert f"fact      {fact['id'][:14]}" in shown
    other = shared_cli(*asked, "--agent", "otto").ok().out
    assert "add --agent mira --user lena; " in other
    assert MIRA not in other
    assert LENA not in other


def test_a_reference_is_an_id_a_scope_a_name_or_a_prefix(cli: Cli) -> None:
    def kind(ref: str) -> str:
        shown = cli.json("show", ref)[0]
        return next(key for key in KEYS if key in shown)

    for ref, key in (
        (LENA, "accounts"),
        (LENA[:6], "accounts"),
        ("lena", "accounts"),
        ("user:lena", "accounts"),
        ("mira", "persona"),
        ("agent:mira", "persona"),
        (f"agent:{MIRA[:8]}", "persona"),
        ("first-visit", "messages"),
        ("session:first-visit", "messages"),
        ("f" * 23 + "1", "quote"),
        ("fact:" + "f" * 23 + "1", "quote"),
        ("e" * 8, "absorbed"),
        ("mira/user:lena", "consolidated_content"),
        (f"{MIRA}/user:{LENA[:6]}", "consolidated_content"),
        (cli.json("log", "--limit", "1")[0]["id"][:20], "undone_by"),
    ):
        assert kind(ref) == key, ref
    cli("user", "add", "mira").ok()
    cli("show", "mira").fails(2, "agent:", "user:")
    assert kind("agent:mira") == "persona"
    for wrong, said in (
        ("edit lena", "'lena' is a user"),
        ("delete mira/user:lena", "is a scope"),
        ("why first-visit", "is a session"),
        ("show entry:lena", "entry not found"),
        ("show user:" + "f" * 23 + "1", "user not found"),
        ("show nobody/user:lena", "agent not found"),
        ("show mira/user:", "reference not found"),
    ):
        refused = cli(*wrong.split())
        assert said in refused.err, (wrong, refused.err)


#: A key of what is shown that only one kind has.
KEYS = (
    *("accounts", "persona", "messages", "quote", "absorbed", "consolidated_content"),
    "undone_by",
)
