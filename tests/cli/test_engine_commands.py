"""form, consolidate and demo: from a conversation to memory, with scripted answers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from edenmem.store.sqlite import SqliteStore
from tests.cli.conftest import Cli
from tests.support.builders import make_agent, make_messages, make_session
from tests.support.fake_openai import KEY, FakeOpenAI, Reply, failing

pytestmark = pytest.mark.slow

WITH_KEY = {"EDENMEM_LLM_API_KEY": KEY}
FACT = "Lena meets the harbour master on 5 January 2026."


def scripted(cli: Cli, answers: dict[tuple[str, str], object]) -> tuple[str, ...]:
    """Options for a replay file with these answers."""
    file = cli.cwd / "answers.jsonl"
    file.write_text(
        "".join(
            json.dumps({"task": task, "key": key, "answer": answer}) + "\n"
            for (task, key), answer in answers.items()
        )
    )
    options = ("llm.provider=replay", f"llm.replay={file}", "formation.check=false")
    return tuple(part for option in options for part in ("--set", option))


def reflections(**given: list[str]) -> dict[str, object]:
    """An answer with these reflections."""
    kinds: dict[str, object] = {
        kind: [] for kind in ("agent", "shards", "group", "user", "session")
    }
    return kinds | {
        kind: [{"content": content, "private": False} for content in contents]
        for kind, contents in given.items()
    }


@pytest.fixture
def talk(cli: Cli) -> Cli:
    """A store with a conversation that nothing was formed from."""
    session = {
        "session": "harbour",
        "agent": "mira",
        "users": ["lena"],
        "messages": [
            {"role": "user", "name": "lena", "content": "I meet the harbour master tomorrow.",
             "created_at": "2026-01-04T10:00:00Z"},
            {"role": "assistant", "content": "Noted.", "created_at": "2026-01-04T10:00:09Z"},
            {"role": "user", "name": "lena", "content": "Remind me early. I forget things.",
             "created_at": "2026-01-04T10:00:30Z"},
        ],
    }  # fmt: skip
    cli("import", "-", input=json.dumps(session)).ok()
    return cli


FORMED = {
    ("facts", "harbour/mira/1"): {
        "facts": [{"content": FACT, "scope": "user", "shard": None, "private": False}]
    },
    ("reflections", "harbour/mira/1"): reflections(user=["Remind Lena early."]),
}


def endpoint(server: FakeOpenAI) -> tuple[str, ...]:
    """Options for an endpoint that is asked once."""
    return ("--set", "llm.retries=0", "--set", f"llm.base_url={server.url}")


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (failing(500, "oops"), "answered 500"),
        (failing(503, "busy"), "answered 503"),
        (failing(429, "slow down"), "answered 429"),
        (failing(404, "no such model", "model_not_found"), "answered 404"),
        (failing(400, "no such parameter"), "answered 400"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_exit_5_and_counts_as_no_try(
    talk: Cli, reply: Reply, words: str
) -> None:
    with FakeOpenAI() as server:
        server.script += [reply] * 8
        for _ in range(3):
            failed = talk("form", "harbour", *endpoint(server), env=WITH_KEY)
            assert (failed.code, failed.out) == (5, ""), failed.err
            assert words in failed.err
    (report,) = talk("form", "harbour", *scripted(talk, FORMED), "--format", "json").ok().data
    assert report["outcome"] == "applied"


def test_nonsense_is_exit_1_and_waits_for_no_person(talk: Cli) -> None:
    with FakeOpenAI(lambda body: "I would rather not.") as server:
        models = ("--set", "llm.fast_model=fast-1")
        failed = talk(
            "form", "harbour", *endpoint(server), *models, "--format", "json", env=WITH_KEY
        )
    assert failed.code == 1
    assert failed.data[0]["outcome"] == "waiting"
    (report,) = talk("form", "harbour", *scripted(talk, FORMED), "--format", "json").ok().data
    assert report["outcome"] == "applied"


def test_a_wrong_setting_is_exit_2_and_counts_as_no_try(talk: Cli) -> None:
    wrong = ("--set", "llm.provider=replay", "--set", "llm.replay=/nope")
    for _ in range(3):
        talk("form", "harbour", *wrong).fails(2, "cannot read /nope")
    talk("cold", "run", *wrong, "--set", "cold.quiet_minutes=0.001").fails(2)
    (report,) = talk("form", "harbour", *scripted(talk, FORMED), "--format", "json").ok().data
    assert report["outcome"] == "applied"


def test_one_scope_that_fails_is_exit_1_and_named(talk: Cli) -> None:
    result = talk("consolidate", "--force", *scripted(talk, {})).fails(1, "mira: user lena: ")
    assert "failed" in result.out


def test_a_session_that_cannot_be_formed_stops_no_other(talk: Cli) -> None:
    """Known failure 75."""
    due = ("--set", "formation.message_interval=1", "--set", "formation.min_messages=1")
    store = SqliteStore(talk.file)
    with closing(store.database):
        ghost = make_session([make_agent("ghost")], name="haunted")
        store.host.put_session(ghost)
        store.host.add_messages(ghost.id, make_messages(ghost, 4))
    result = talk("form", "--due", *due, *scripted(talk, FORMED)).fails(1)
    assert "harbour" in result.out
    assert "haunted: no agent of session 'haunted' exists" in result.err
    assert "Traceback" not in result.err


def test_what_was_rejected_is_counted_by_rule_and_listed(talk: Cli) -> None:
    nowhere = {"content": "The harbour opens at six.", "scope": "group", "shard": None}
    answers: dict[Any, Any] = dict(FORMED)
    answers["facts", "harbour/mira/1"] = {
        "facts": [*FORMED["facts", "harbour/mira/1"]["facts"], {**nowhere, "private": False}]
    }
    options = scripted(talk, answers)
    short = talk("form", "harbour", "--dry-run", *options).ok()
    assert "rejected by rule: " in short.err
    assert "The harbour opens at six." not in short.out
    assert f"  would add user fact: {FACT}" in short.out
    (counted,) = talk.json("form", "harbour", "--dry-run", *options)
    assert (counted["facts_added"], counted["reflections"]) == (1, {"user": 1})
    assert "The harbour opens at six." in talk("form", "harbour", "--verbose", *options).ok().out
    assert (
        "The harbour opens at six." in talk("form", "harbour", "--again", "-v", *options).ok().out
    )
    (fact,) = [
        each
        for each in talk.json("fact", "list", "--agent", "mira", "--user", "lena")
        if each["content"] == FACT
    ]
    why = talk("why", fact["id"]).ok()
    assert "rejected in the same formation" in why.out
    assert "The harbour opens at six." in why.out


def test_what_a_dry_run_would_do_stands_under_its_session(talk: Cli) -> None:
    """Each line within the width of the screen."""
    talk("import", "-", input=json.dumps(
        {"session": "market", "agent": "mira", "users": ["lena"], "messages": [
            {"role": "user", "name": "lena", "content": "I sell nets.",
             "created_at": "2026-01-05T10:00:00Z"}]}
    )).ok()  # fmt: skip
    long = "Lena sells nets at the market, " + "beside the old harbour wall, " * 4 + "on Fridays."
    answers: dict[Any, Any] = dict(FORMED)
    answers["facts", "market/mira/1"] = {
        "facts": [{"content": long, "scope": "user", "shard": None, "private": False}]
    }
    answers["reflections", "market/mira/1"] = reflections()
    shown = talk("form", "harbour", "market", "--dry-run", *scripted(talk, answers)).ok().out
    lines = shown.splitlines()
    assert lines[lines.index("harbour:") + 1] == f"  would add user fact: {FACT}"
    assert lines[lines.index("market:") + 1].startswith("  would add user fact: Lena sells nets")
    assert all(len(line) <= 80 for line in lines[lines.index("harbour:") :])


def test_a_user_goes_with_user_scopes_only(talk: Cli) -> None:
    assert talk("consolidate", "--user", "lena", "--scope", "agent").code == 2


def test_the_context_of_another_time(talk: Cli) -> None:
    now = talk.json("context", "first-visit")[0]
    before = talk.json("context", "first-visit", "--as-of", "2020-01-01")[0]
    assert "ninety whale lanterns" in now["xml"]
    assert "lanterns" not in before["xml"]
    assert {part["name"] for part in now["parts"]}
    assert all(scope["agent_id"] for scope in now["scopes"])
    for wrong in (("--recall", "sometimes"), ("--as-of", "soon")):
        assert talk("context", "first-visit", *wrong).code == 2


def test_the_demo_tells_its_story_in_a_new_file(empty_cli: Cli) -> None:
    told = empty_cli("demo", env={"EDENMEM_EMBEDDING_PROVIDER": "local"}).ok()
    words = [line.split()[0] for line in told.out.splitlines() if line[:1].strip()]
    assert words[:5] == ["Formed", "Found", "Why", "Corrected", "Undone"]
    assert "scripted answers" in told.err
    found, _, undone = (part.strip() for part in told.out.partition("Why"))
    insurance = " ".join(found.split("--agent mira")[1].split())
    assert "810 euros" in insurance
    assert insurance in " ".join(undone.split("Undone")[1].split())
    uri = re.findall(r"edenmem scope list --uri (\S+)", told.out)[0]
    actions = [row["action"] for row in empty_cli.json("log", "--limit", "2", "--uri", uri)]
    assert actions == ["revise_fact", "revise_fact"]


def test_an_error_names_its_session_and_what_was_done_is_told(talk: Cli) -> None:
    talk("agent", "set", "mira", "--no-user-memory", "--no-agent-memory").ok()
    later = {"session": "kites", "agent": "mira", "users": ["lena"], "messages": [
        {"role": "user", "name": "lena", "content": "Kites!", "created_at": "2026-01-05T10:00:00Z"},
    ]}  # fmt: skip
    talk("import", "-", input=json.dumps(later)).ok()
    answers = {("reflections", "harbour/mira/1"): reflections(session=["Lena is early."])}
    failed = talk("form", "harbour", "kites", *scripted(talk, answers)).fails(5)
    assert "harbour" in failed.out
    assert "applied" in failed.out
    assert "error: kites: " in failed.err
    # The scope of the session has no switch: its reflection is formed all the same.
    told = " ".join(failed.err.split())
    assert "memory of mira are off: formed 3 messages without memory" in told
    assert (
        "'edenmem agent set mira --user-memory --agent-memory', then 'edenmem form harbour --again'"
        in told
    )
    session = ("--agent", "mira", "--session", "harbour")
    (kept,) = talk.json("reflection", "list", *session)
    assert kept["content"] == "Lena is early."

    idle = talk("form", "harbour", *scripted(talk, answers)).ok()
    assert "nothing new" in idle.out
    assert "all messages were formed; repeat with --again" in " ".join(idle.err.split())
    missing = talk("form", "kites", "--set", "llm.provider=replay", "--set", "llm.replay=none")
    assert (missing.code, "no language model is called" in missing.err) == (2, False)
    talk("agent", "set", "mira", "--user-memory", "--agent-memory").ok()
    (again,) = (
        talk("form", "harbour", "--again", *scripted(talk, FORMED), "--format", "json").ok().data
    )
    assert (again["outcome"], again["messages"], again["facts_added"]) == ("applied", 3, 1)


NOTE = "Lena hands the hall keys to Tomas on 7 January 2026."
REMEMBERED = {
    ("facts", f"remember/mira/lena/{NOTE[:40]}"): {
        "facts": [
            {"content": NOTE, "scope": "user", "shard": None, "private": False, "sources": [1]}
        ]
    }
}


def test_a_text_is_remembered(talk: Cli) -> None:
    options = ("--agent", "mira", "--user", "lena", *scripted(talk, REMEMBERED))
    user = ("--agent", "mira", "--user", "lena", "--scope", "user")
    tried = talk("remember", NOTE, "--dry-run", *options).ok()
    assert tried.out.split()[:4] == ["outcome", "fact", "why", "add"]
    assert NOTE not in [fact["content"] for fact in talk.json("fact", "list", *user)]
    assert "added" in talk("remember", "-", *options, input=NOTE).ok().out
    assert NOTE in [fact["content"] for fact in talk.json("fact", "list", *user)]
    (again,) = talk.json("remember", NOTE, *options)
    assert (again["action"], again["content"]) == ("NONE", NOTE)
    (fact,) = (each["id"] for each in talk.json("fact", "list", *user) if each["content"] == NOTE)
    assert "a text given to 'edenmem remember'" in talk("why", fact).ok().out


def test_doubtful_and_rejected_facts_are_told_when_they_are_made(talk: Cli) -> None:
    """A fact without a quote is kept as unconfirmed; an order is rejected."""
    said = "Lena keeps the hall keys."
    doubtful = "Lena has the keys of the hall."
    wrong = "Always call Lena first."
    items = [
        {"content": content, "scope": "user", "shard": None, "private": False, "sources": [1]}
        for content in (doubtful, wrong)
    ]
    answers: dict[Any, Any] = {("facts", f"remember/mira/lena/{said}"): {"facts": items}}
    checked = ("--set", "formation.check=true")
    options = ("--agent", "mira", "--user", "lena", *scripted(talk, answers), *checked)
    for command in (("--dry-run",), ()):
        told = talk("remember", said, *command, *options).ok().out
        assert f"{doubtful} (unconfirmed: has no quote)" in " ".join(told.split())
        assert f"{wrong} (" in " ".join(told.split())
    (only,) = talk.json("fact", "list", "--agent", "mira", "--user", "lena", "--unconfirmed")
    assert (only["content"], only["unconfirmed"]) == (doubtful, "has no quote")
    assert "unconfirmed: has no quote" in talk("why", only["id"]).ok().out


def test_doubt_and_quotes_are_shown_where_facts_are(talk: Cli) -> None:
    said, quote = "Lena keeps the hall keys.", "the hall keys"
    doubtful = "Lena keeps the hall keys for Rafael."
    item = {
        "content": doubtful,
        "scope": "user",
        "shard": None,
        "private": False,
        "sources": [1],
        "quote": quote,
    }
    answers: dict[Any, Any] = {("facts", f"remember/mira/lena/{said}"): {"facts": [item]}}
    her = ("--agent", "mira", "--user", "lena")
    talk("remember", said, *her, *scripted(talk, answers), "--set", "formation.check=true").ok()
    found = " ".join(talk("search", "hall keys", *her, "--explain").ok().out.split())
    assert "unconfirmed" in found
    assert f"quote: “{quote}”" in found
    (hit, *_) = talk.json("search", "hall keys", *her, "--explain")
    assert hit["explain"]["unconfirmed"]["weight"] == 0.8
    assert f"“{quote}”" in talk("why", hit["id"]).ok().out
    mixed = talk("search", "hall keys", *her, "--in", "facts,reflections").ok().out
    assert "unconfirmed" in mixed
    assert "unconfirmed" in talk("stats").ok().out


def test_a_person_decides_on_a_terminal(talk: Cli, scripted_editor: Callable[[str], str]) -> None:
    texts = ("Lena keeps keys.", "Lena has a boat.", "Lena rows at dawn.", "Lena may sing.")
    items = [
        {"content": text, "scope": "user", "shard": None, "private": False, "sources": [1]}
        for text in texts
    ]
    answers: dict[Any, Any] = {
        ("facts", "harbour/mira/1"): {"facts": items},
        ("reflections", "harbour/mira/1"): reflections(user=["Remind Lena early."]),
    }
    formed = talk("form", "harbour", "--propose", *scripted(talk, answers)).ok()
    assert "held for review: 5 items; decide: edenmem review" in formed.err
    her = ("--agent", "mira", "--user", "lena")
    own = (*her, "--scope", "user")
    known = len(talk.json("fact", "list", *own)) + len(talk.json("reflection", "list", *own))
    editor = scripted_editor("path.write_text('Lena has two boats.\\n')")
    result = talk.on_terminal(
        "review", *her, env={"EDITOR": editor},
        answers=[("[y,n,e,s,q,?]", "?"), ("show these keys", ""), ("[y,n,e,s,q,?]", "y"),
                 ("[y,n,e,s,q,?]", "e"), ("Write this?", "y"),
                 ("[y,n,e,s,q,?]", "n"), ("[y,n,e,s,q,?]", "s"), ("[y,n,e,s,q,?]", "q")],
    )  # fmt: skip
    assert result.code == 0, result.out
    assert "1 of 5" in result.out
    assert len(talk.json("review", "list", *her)) == 2
    facts = talk.json("fact", "list", *own)
    thoughts = talk.json("reflection", "list", *own)
    assert len(facts) + len(thoughts) == known + 2
    assert "Lena has two boats." in {each["content"] for each in (*facts, *thoughts)}
    talk("undo", "--last", "--yes").ok()
    assert len(talk.json("review", "list", *her)) == 5


def test_what_is_held_is_listed_and_counted(talk: Cli) -> None:
    said, doubtful = "Lena keeps the hall keys.", "Lena has the keys of the hall."
    item = {"content": doubtful, "scope": "user", "shard": None, "private": False, "sources": [1]}
    answers: dict[Any, Any] = {("facts", f"remember/mira/lena/{said}"): {"facts": [item]}}
    checked = ("--set", "formation.check=true", "--set", "formation.doubtful=hold")
    her = ("--agent", "mira", "--user", "lena")
    told = talk("remember", said, *her, *scripted(talk, answers), *checked).ok().out
    assert f"held for review: {doubtful} (has no quote)" in " ".join(told.split())
    assert doubtful not in [each["content"] for each in talk.json("fact", "list", *her)]
    (only,) = talk.json("review", "list", *her)
    assert (only["content"], only["reasons"], only["kind"]) == (doubtful, "has no quote", "fact")
    assert only["state"] == "held"
    assert talk.json("review", "list", "--agent", "mira", "--scope", "agent") == []
    assert f"{doubtful} (has no" in talk("review", "list", *her).ok().out
    for command in ("status", "stats"):
        assert "1 item, the oldest held" in " ".join(talk(command).ok().out.split())
        counted = talk.json(command)
        counted = counted[0] if isinstance(counted, list) else counted
        assert counted["held"]["number"] == 1
    assert talk("review", *her).code == 2  # no terminal
    assert talk("review", "reject", only["id"]).code == 2  # no --yes
    assert talk("review", "accept", only["id"], "0123abcd").code == 1
    assert doubtful in [each["content"] for each in talk.json("fact", "list", *her)]
    assert talk.json("review", "list", *her) == []
    talk("undo", "--last", "--yes").ok()
    assert talk("review", "reject", only["id"][:14], "--yes", "--reason", "a joke").ok().out
    assert talk("review", "accept", only["id"]).code == 3


def test_what_cannot_be_remembered_says_why(talk: Cli) -> None:
    options = ("--agent", "mira", *scripted(talk, REMEMBERED))
    empty = talk("remember", "  ", *options)
    assert (empty.code, empty.out) == (2, "")
    assert "the text to remember is empty" in empty.err
    assert "the text to remember is empty" in talk("remember", "  ", "--agent", "mira").err
    talk("remember", *options, input=NOTE).fails(
        2, "TEXT or --file is missing\n  hint: TEXT - reads from stdin"
    )
    talk("remember", "two", "words", *options).fails(2, "in quotes")
    assert talk("remember", NOTE, "--file", "notes.txt", *options).code == 2
    assert talk("remember", NOTE, "--user", "nobody", *options).code == 3
    talk("agent", "set", "mira", "--no-user-memory", "--no-agent-memory").ok()
    talk("remember", NOTE, *options).fails(2, "edenmem show agent:mira")
