"""export and import as a person and a script use them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from edenmem.cli.commands import exchange
from tests.cli.conftest import VISIT, Cli

pytestmark = pytest.mark.slow


def _other(cli: Cli, tmp_path: Path) -> Cli:
    other = Cli(f"sqlite:///{tmp_path}/other.db", tmp_path)
    other("init", "--yes").ok()
    return other


def test_a_backup_gives_the_same_searches_and_the_same_contexts(cli: Cli, tmp_path: Path) -> None:
    assert "records to backup.jsonl.gz" in cli("export", "backup.jsonl.gz").ok().out
    assert (tmp_path / "backup.jsonl.gz").stat().st_mode & 0o777 == 0o600
    other = _other(cli, tmp_path)
    assert "added" in other("import", "backup.jsonl.gz", "--dry-run").ok().out
    assert other.json("agent", "list") == []
    other("import", "backup.jsonl.gz").ok()

    searched = ("search", "Lisbon", "tea", "--agent", "mira", "--user", "lena", "--no-track")
    assert cli.json(*searched) == other.json(*searched)
    context = ("context", VISIT, "--agent", "mira")
    assert cli(*context).ok().out == other(*context).ok().out
    assert "added" not in other("import", "backup.jsonl.gz").ok().out

    cli("export", "one.jsonl").ok()
    other("export", "two.jsonl").ok()
    one, two = (
        (tmp_path / name).read_text().split("\n", 1)[1] for name in ("one.jsonl", "two.jsonl")
    )
    assert one == two


def test_exports_go_through_pipes_and_are_never_half(cli: Cli, tmp_path: Path) -> None:
    piped = cli.process("export", "-", "--type", "fact", "--agent", "mira", "--no-vectors").ok()
    rows = [json.loads(line) for line in piped.out.splitlines()]
    assert {row["type"] for row in rows} == {"header", "fact", "trailer"}
    assert all(row["embedding"] is None for row in rows if row["type"] == "fact")
    assert " facts" in piped.err
    cli("export", "facts.jsonl").ok()
    cli("export", "facts.jsonl").fails(4, "--force")
    assert cli("export", "x.jsonl", "--format", "csv").code == 2
    assert cli("export", "no/such/folder.jsonl").code == 2
    assert sorted(path.name for path in tmp_path.glob("*.jsonl*")) == ["facts.jsonl"]

    whole = (tmp_path / "facts.jsonl").read_bytes()
    other = _other(cli, tmp_path)
    for cut in (whole[:-200], gzip.compress(whole, mtime=0)[:-20]):
        (tmp_path / "cut.jsonl").write_bytes(cut)
        other("import", "cut.jsonl").fails(2, ".jsonl:", "--skip-bad")
    assert other.json("agent", "list") == []
    (tmp_path / "cut.jsonl").write_bytes(whole[:-200])
    partial = other("import", "cut.jsonl", "--skip-bad", "--dry-run").fails(
        1, "the file is damaged: cut.jsonl:"
    )
    assert partial.err.count("cut.jsonl:") == 2  # what it contains, and the damage
    assert "fact" in other.process("import", "-", input=whole).ok().out


def test_a_line_of_ones_own_and_a_conflict(cli: Cli, tmp_path: Path) -> None:
    line = {"type": "fact", "agent": "mira", "scope": "user", "user": "lena", "content": "Yes."}
    assert "undo --run" in cli("import", "-", input=json.dumps(line)).ok().err
    again = cli("import", "-", input=json.dumps(line)).ok()
    assert "nothing to import: 1 record exists already" in again.err
    (fact,) = [
        f
        for f in cli.json("fact", "list", "--agent", "mira", "--user", "lena")
        if f["content"] == "Yes."
    ]
    other = json.dumps(line | {"id": fact["id"], "content": "No."})
    cli("import", "-", input=other).fails(1, "stored with different content")
    assert "replaced" in cli("import", "-", "--on-conflict", "replace", input=other).ok().out
    cli("import", "-", input='{"type": "fact"}\nnonsense\n').fails(2, "stdin:1: ", "stdin:2: ")
    cli("import", "-", "--skip-bad", "--as", "records", input="nonsense\n").fails(
        1, "no valid lines"
    )
    cli("import", "-", "--skip-bad", input="nonsense\n").fails(
        2, "stdin does not begin like any format"
    )
    assert cli("import", "-", "--delete", input="").code == 2


def test_memories_of_mem0_come_in_by_their_own_format(cli: Cli) -> None:
    one = {"id": "a-1", "memory": "Lena rows on Sundays.", "created_at": "2025-03-01T02:00:00Z"}
    export = json.dumps({"results": [one | {"user_id": "lena"}, one | {"user_id": "stranger"}]})
    asked = ("import", "-", "--agent", "mira")
    cli(*asked, input=export).fails(2, "entry 2: unknown user: 'stranger'", "--add-missing adds")
    for form in (export, json.dumps([one], indent=1), json.dumps(one)):
        assert "stdin: mem0 memories\n" in cli("import", "-", "--dry-run", input=form).err
    for other in (json.dumps({"content": "a memory"}), json.dumps({"type": "x", "memory": "y"})):
        assert "mem0" not in cli("import", "-", input=other).err
    cli(*asked, "--skip-bad", input=export).fails(1, "entry 2: ", "undo --run")
    (fact,) = [
        fact
        for fact in cli.json("fact", "list", "--agent", "mira", "--user", "lena")
        if fact["content"] == one["memory"]
    ]
    assert fact["formed_at"].startswith("2025-03-01T02:00:00")
    assert cli.json("log")[0]["reason"] == "imported from mem0 a-1"
    (report,) = json.loads(cli("import", "-", "--format", "json", input="").ok().out)
    assert report["counts"] == {}
    assert cli("import", "-", "--agent", "mira", input="").code == 2
    assert cli("import", "-", "--scope", "shard", input=export).code == 2
    assert cli("import", "-", "--format", "xml", input="").code == 2


def test_chats_come_with_what_the_command_says_before(cli: Cli, tmp_path: Path) -> None:
    talk = [{"role": "human", "content": "I row."}, {"role": "assistant", "content": "Where?"}]
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps(talk))
    cli("import", "chat.json", "--agent", "mira").fails(
        2, "--user is missing", "chat.json: lists of messages\n  1 session, 2 messages\n"
    )
    cli("import", "chat.json", "--agent", "mira", "--user", "zoe").fails(3, "users: zoe (unknown)")
    options = ("--agent", "mira", "--user", "zoe", "--add-missing")
    looked = cli("import", "chat.json", *options, "--dry-run").ok()
    assert "would import 1 of 1 session, 2 of 2 messages" in looked.out
    done = cli("import", "chat.json", *options).ok()
    assert "no times: 1 session" in done.err
    assert "next: " in done.err
    (again,) = json.loads(cli("import", "chat.json", *options, "--format", "json").ok().out)
    assert (again["new_messages"], again["left_out"]) == (0, {})
    chat.write_text(json.dumps([talk, talk])[:-9])
    cli("import", "chat.json", *options).fails(2, "chat.json: cannot be read beyond byte")
    cli("import", "chat.json", *options, "--skip-bad").fails(1, "cannot be read beyond byte")
    chat.write_text(json.dumps([talk, [{"role": "king", "content": "x"}]]))
    assert "chat.json: entry 2: messages[0].role" in cli("import", "chat.json", *options).err
    assert "entry 2: " in cli("import", "chat.json", *options, "--skip-bad").err


def test_a_person_is_asked_for_what_the_file_does_not_say(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "I row."}]')
    asked: list[str] = []

    def answer(question: str, *_: object, **__: object) -> str:
        asked.append(question)
        return "zoe"

    monkeypatch.setattr(exchange, "person_is_there", lambda: True)
    monkeypatch.setattr(exchange, "ask_text", answer)
    monkeypatch.setattr(exchange, "confirm", answer)
    looked = cli("import", "chat.json", "--agent", "mira", "--dry-run")
    assert (looked.code, "--user is missing" in looked.err, asked) == (2, True, [])
    done = cli("import", "chat.json", "--agent", "mira").ok()
    assert asked == ["user", "Add user zoe?"]
    assert "imported 1 of 1 session" in done.out


def test_facts_are_written_for_another_system(cli: Cli, tmp_path: Path) -> None:
    done = cli("export", "out.json", "--to", "mem0", "--user", "lena").ok()
    assert "facts" in done.out
    assert "left out: " in done.err
    found = json.loads((tmp_path / "out.json").read_text())["results"]
    assert {memory["user_id"] for memory in found} == {"lena"}
    piped = cli.process("export", "-", "--to", "mcp").ok()
    assert {json.loads(line)["type"] for line in piped.out.splitlines()} == {"entity"}
    assert cli("export", "x", "--to", "mcp", "--format", "markdown").code == 2
    assert cli("export", "x", "--to", "mcp", "--type", "fact").code == 2


def test_the_memory_of_another_system_is_checked_and_can_be_searched(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    note = tmp_path / "notes" / "MEMORY.md"
    note.write_text("# Lena\n- Lena collects \x1b[31mmaps.\n- Key: AKIAIOSFODNN7EXAMPLE\n")
    cli("import", "notes", "--agent", "mira").fails(2, "--scope agent")
    options = ("--agent", "mira", "--user", "lena")
    looked = cli("import", "notes", *options, "--dry-run").ok()
    assert "items with secrets (1)" in looked.err
    assert "entry 2: contains an access key (MEMORY.md:3)\n" in looked.err
    assert "\x1b" not in looked.err
    done = cli("import", "notes/MEMORY.md", *options).ok()
    assert "edenmem search QUERY --agent mira --user lena'" in done.err
    assert "same" in cli("import", "notes", *options).ok().out
    assert cli("import", "notes", *options, "--delete").code == 2


def test_markdown_is_shown_as_a_plan_and_asked_about(cli: Cli, tmp_path: Path) -> None:
    cli("export", "notes", "--format", "markdown", "--agent", "mira").ok()
    listed = next((tmp_path / "notes").rglob("facts.md"))
    listed.write_text(listed.read_text() + "- Something \x1b[31mnew.\n")
    unsaid = cli("import", "notes").fails(2, "--yes")
    assert "+ Something" in unsaid.out
    assert "\x1b" not in unsaid.out
    assert "would apply 1 change" in cli("import", "notes", "--dry-run").ok().err
    assert "applied 1 of 1 change" in cli("import", "notes", "--yes").ok().out
    assert "nothing to change" in cli("import", "notes").ok().err
    (report,) = cli.json("import", "notes")
    assert (report["edits"], report["done"]) == ([], 0)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert cli("import", "empty").code == 2


def test_scheduled_backups(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    first = cli("backup", str(folder)).ok()
    (made,) = folder.iterdir()
    assert str(made) in first.out
    other = _other(cli, tmp_path)
    assert "added" in other("import", str(made), "--dry-run").ok().out

    env = {"EDENMEM_BACKUP_FOLDER": str(folder)}
    assert f"removed {made}" in cli("backup", "--keep", "1", env=env).ok().out
    assert len(list(folder.iterdir())) == 1
    (check,) = cli("doctor", "--check", "backups", "--format", "json", env=env).ok().data
    assert (check["state"], check["remark"]) == ("ok", "the last of 1 is 0 hours old")
    cli("backup", "--keep", "1").fails(2, "backup.folder")
