"""What is done on the scripted day: every command, on the example community and the v1 dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.golden.day import Day
from tests.golden.remains import stored

COMMUNITY = "examples/community/sessions.jsonl"
V1 = "examples/v1_dump"

LENA = "--agent mira --user lena"
TEXT = "mira/user:lena"


def live_through(day: Day) -> None:
    """Run the day from its first command to its last."""
    begin(day)
    people(day)
    form(day)
    look(day)
    search(day)
    facts(day)
    reflections(day)
    texts(day)
    scopes(day)
    refuse(day)
    undo(day)
    files(day)
    migrate(day)
    forget(day)
    look_after(day)
    day.chapter("remains")
    day.remains(stored(day.uri))


def begin(day: Day) -> None:
    """An empty store, and conversations in it."""
    day.chapter("begin")
    day("fact list --agent mira")
    day("init --yes")
    day("init --yes")
    day(f"import {COMMUNITY} --dry-run --add-missing --owner lena")
    day(f"import {COMMUNITY}")
    day(f"import {COMMUNITY} --add-missing --owner lena")
    day(f"import {COMMUNITY} --add-missing --owner lena")
    day("import - --add-missing --owner lena", stdin='{"agent": "mira"}\nnonsense\n')


def people(day: Day) -> None:
    """Who there is."""
    day.chapter("people")
    for line in ("agent list", "show agent:mira", "user list", "show user:lena", "session list"):
        day.formats(line)
    day.formats("show lena-first-visit")
    day("agent add extra --owner lena --name Extra --persona 'Keeps quiet.'")
    day("agent add extra --owner lena")
    day("user add zoe")
    day("agent set extra --no-user-memory --dry-run")
    day("agent set extra --no-user-memory --reason 'not needed'")
    day("agent set extra --no-user-memory")
    day("agent set extra --user-memory --agent-memory")
    day("session list --agent mira --user lena --limit 1")


def form(day: Day) -> None:
    """Memories from conversations."""
    day.chapter("form")
    day.formats("status")
    day("form lena-first-visit --dry-run")
    day("form lena-first-visit")
    day("form lena-first-visit --format json")
    day("form lena-first-visit --again")
    # One after the other: a session's agents are formed at the same time.
    day("form both-agents-rehearsal --agent mira --no-consolidate")
    day("form both-agents-rehearsal --agent otto --no-consolidate")
    day("form --due --no-consolidate")
    day.formats("scope list --due")
    day("consolidate --scope user --dry-run")
    day("consolidate --scope user")
    day("consolidate")
    day("consolidate --agent mira --user lena --force --format json")
    day("cold run --dry-run")
    day("cold run")
    day.formats("cold status")


def look(day: Day) -> None:
    """Everything that only looks."""
    day.chapter("look")
    for line in (
        "scope list",
        f"scope show {LENA}",
        f"fact list {LENA}",
        f"reflection list {LENA}",
        "consolidation list",
        f"consolidation show {LENA}",
        f"history {TEXT}",
        "stats",
        "embed status",
        "log --limit 30",
        "context lena-progress",
    ):
        day.formats(line)
    day("context harbour-lights-second --message 'Is the permit there?' --recall always")
    day(f"why {TEXT}")
    fact = day.json(f"fact list {LENA}")[0]["id"]
    for line in ("show", "why", "history"):
        day.formats(f"{line} {fact}")


def search(day: Day) -> None:
    """Search, by words alone: vectors differ between processors."""
    day.chapter("search")
    day.formats(f"search 'what glue do we use for the lanterns?' {LENA} --no-track")
    day(f"search glue lanterns {LENA} --explain --no-track")
    day(f"search glue lanterns {LENA} --scope user --limit 2")
    day("search 'who pays' --agent mira")
    day("search 'board 17 keeps resetting' --agent otto --user priya --recipe text --format json")


def facts(day: Day) -> None:
    """Facts by hand."""
    day.chapter("facts")
    day(f"fact add {LENA} --scope user --content 'Lena keeps bees on the roof.' --dry-run")
    day(
        f"fact add {LENA} --scope user --content 'Lena keeps bees on the roof.' --reason 'she said'"
    )
    day(f"fact add {LENA} --scope user --content 'Lena keeps bees on the roof.'")
    day("fact add --agent mira --scope agent --content 'The hall has two doors.' --format json")
    fact = _fact(day, LENA, "bees")
    day(f"fact edit {fact} --content 'Lena keeps six hives on the roof.' --dry-run")
    day(f"fact edit {fact} --content 'Lena keeps six hives on the roof.' --yes --reason more")
    day(f"fact edit {fact} --content 'Lena keeps six hives on the roof.' --yes")
    day(f"fact edit {fact} --private --yes")
    day.formats(f"history {fact}")
    day(f"restore {fact} --version 1 --dry-run")
    day(f"restore {fact} --version 1 --yes")
    day(f"delete {fact} --dry-run")
    day(f"delete {fact} --yes --reason 'wrong person'")
    day(f"delete {fact} --yes")
    day(f"show {fact}")
    day(f"restore {fact} --version 2 --yes")
    day(f"fact add {LENA} --scope user --content 'Lena keeps six hives on the roof.'")
    day(f"delete {fact} --yes")
    day(f"fact add {LENA} --scope user --content 'Lena keeps six hives on the roof.'")
    day(f"fact merge {LENA} --scope user --dry-run --format json")
    day(f"fact add {LENA} --scope user --content '{'word ' * 40}'")


def reflections(day: Day) -> None:
    """Reflections by hand."""
    day.chapter("reflections")
    day(f"reflection add {LENA} --scope user --content 'Lena likes mornings.' --reason seen")
    day(f"reflection add {LENA} --scope user --content 'Lena likes mornings.' --dry-run")
    pending = f"reflection list {LENA} --scope user --pending"
    one = next(each["id"] for each in day.json(pending) if "mornings" in each["content"])
    day(f"edit {one} --content 'Lena likes early mornings.' --yes")
    day.formats(f"show {one}")
    day(f"delete {one} --dry-run")
    day(f"delete {one} --yes")
    day(f"delete {one} --yes")
    day(pending)


def texts(day: Day) -> None:
    """Consolidated texts by hand."""
    day.chapter("texts")
    day(f"consolidation edit {LENA} --content 'Lena is busy.' --dry-run")
    day(f"consolidation edit {LENA} --content 'Lena is busy.' --yes --reason shorter")
    day(f"consolidation edit {LENA} --content 'Lena is busy.' --yes")
    day(f"consolidation diff {LENA} --from 1 --to 2")
    day(f"restore {TEXT} --version 1 --dry-run")
    day(f"restore {TEXT} --version 1 --yes")
    day(f"restore {TEXT} --version 99 --yes")
    day.formats(f"history {TEXT}")


def scopes(day: Day) -> None:
    """Policies and pauses."""
    day.chapter("scopes")
    day(f"scope policy {LENA}")
    day(f"scope policy {LENA} --consolidate-at 6 --word-limit 250 --dry-run")
    day(f"scope policy {LENA} --consolidate-at 6 --word-limit 250 --reason 'talks a lot'")
    day(f"scope policy {LENA} --default word-limit")
    day(f"scope policy {LENA} --private")
    day("scope policy --agent mira --shard route --memory-instructions 'Only the route.'")
    day("fact add --agent mira --shard route --content 'The mole is closed.'")
    day("scope pause --agent mira --shard route --dry-run")
    day("scope pause --agent mira --shard route")
    day("scope pause --agent mira --shard route")
    day("fact add --agent mira --shard route --content 'The bridge is open.'")
    day("scope resume --agent mira --shard route")
    day.formats("scope show --agent mira --shard route")
    day.formats("scope list")


def refuse(day: Day) -> None:
    """What is wrong is said."""
    day.chapter("refuse")
    for line in (
        "fact list --agent nobody",
        "fact list --agent mira --scope user",
        "show 0000",
        "show",
        "fact add --agent mira --user nobody --content x",
        "fact edit 000000000000000000000000 --content x --yes",
        "scope policy --agent mira --consolidate-at none",
        "search --agent mira",
        "search x --agent mira --recipe best",
        "log --since yesterday-ish",
        "undo 0000000000",
        "form nothing",
        "consolidate --scope all",
        "cold retry 0000000000",
        "index drop nothing --yes",
        "migrate rollback nothing",
        "export /nowhere/at/all.jsonl",
        "import missing.jsonl",
        "forget --user nobody --yes",
        "embed backfill",
        "frobnicate",
        "fact frobnicate",
        "fact list --frobnicate",
        "config show nothing",
    ):
        day(line)


def undo(day: Day) -> None:
    """Taking back."""
    day.chapter("undo")
    day(f"fact add {LENA} --scope user --content 'Lena owns a canoe.'")
    day("undo --dry-run " + _entry(day))
    day("undo --yes " + _entry(day))
    day("undo --yes " + _entry(day))
    fact = day.json(f"fact list {LENA}")[0]["id"]
    day(f"fact edit {fact} --content 'Something else altogether.' --yes")
    edit = _entry(day)
    day(f"fact edit {fact} --content 'And something else again.' --yes")
    day(f"undo --yes {edit}")
    day(f"undo --yes --force {edit}")
    day("agent add spare --owner lena")
    day("undo --yes " + _entry(day))
    day(f"consolidation edit {LENA} --content 'Lena has gone fishing.' --yes")
    day("undo --yes --format json " + _entry(day))
    formed = next(one for one in day.json("log --limit 300") if "form" in one["actor"]["command"])
    run = formed["actor"]["run_id"]
    day(f"log --run {run} --limit 50")
    day(f"undo --run {run} --dry-run")
    day(f"undo --run {run} --dry-run --format json")
    day(f"undo --run {run} --yes")
    day(f"undo --run {run} --yes")
    day(f"show {_entry(day)} --format json")


def files(day: Day) -> None:
    """Backups and folders of Markdown."""
    day.chapter("files")
    day("export backup.jsonl")
    day("export backup.jsonl")
    day("export - --agent otto --type fact")
    day("import backup.jsonl --dry-run")
    day("import backup.jsonl --yes")
    day("export notes --format markdown --agent mira")
    day("import notes --dry-run")
    note = next(
        path for path in sorted((day.folder / "notes").rglob("*.md")) if "ferry" in _text(path)
    )
    note.write_text(_text(note).replace("ferry hall", "old ferry hall", 1), "utf-8")
    day("import notes --dry-run")
    day("import notes --yes")


def migrate(day: Day) -> None:
    """Memory of v1, into stores of their own."""
    day.chapter("migrate")
    with day.elsewhere(day.second):
        _migrate(day)


def _migrate(day: Day) -> None:
    day("init --yes")
    day("migrate up")
    day("migrate status")
    day(f"migrate v1 --from {V1} --dry-run")
    day(f"migrate v1 --from {V1} --dry-run --format json")
    day(f"migrate v1 --from {V1} --yes --provenance --no-embed")
    day.formats("migrate status")
    run = day.json("migrate status")[0]["runs"][0]["id"]
    day(f"migrate verify {run} --from {V1}")
    day("scope list")
    day("consolidation list")
    day(f"migrate v1 --from {V1} --yes --provenance --no-embed")
    day(f"undo --run {run} --dry-run")
    day(f"migrate rollback {run} --dry-run")
    day(f"migrate rollback {run} --yes")
    day("migrate status")
    day(f"migrate v1 --from {V1} --yes --shards keep --no-embed")
    day("scope list")


def forget(day: Day) -> None:
    """Somebody who wants to be forgotten."""
    day.chapter("forget")
    day("forget --user tomas --dry-run")
    day("forget --user tomas --dry-run --format json")
    day("forget --user tomas --yes --mentions keep")
    day("forget --user tomas --yes")
    day("fact list --agent mira --user tomas")
    day("forget --session lena-progress --yes")


def look_after(day: Day) -> None:
    """The health of it all, at the end of the day."""
    day.chapter("after")
    day("doctor")
    day("doctor --full")
    day("doctor --format json")
    day("doctor --list")
    day("doctor --fix --dry-run")
    day("doctor --fix --yes")
    day("scope list --format json")
    day("stats")
    day.formats("log --limit 10")


def _fact(day: Day, of: str, word: str) -> str:
    return str(next(one["id"] for one in day.json(f"fact list {of}") if word in one["content"]))


def _entry(day: Day) -> str:
    """The newest entry of the log."""
    entry: Any = day.json("log --limit 1")[0]
    return str(entry["id"])


def _text(path: Path) -> str:
    return path.read_text("utf-8")
