"""Memory as a Markdown folder: readable, stable, and imported as edits."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edenmem.engine.exchange.edits import ApplyReport, Plan, apply_edits, plan_edits
from edenmem.engine.exchange.exporter import ExportRequest
from edenmem.engine.exchange.folders import (
    Item,
    Page,
    export_folder,
    file_names,
    fold_name,
    parse,
    render,
)
from edenmem.errors import ConflictError, InputError
from edenmem.models.changes import AddFact, AddReflection
from edenmem.models.memory import FactFields
from edenmem.models.scope import Scope
from edenmem.models.search import FactFilter
from edenmem.store.protocol.store import Store
from edenmem.text import clean
from tests.support.builders import (
    NOW,
    ago,
    make_actor,
    make_agent,
    make_fact,
    make_reflection,
    make_user,
    removal,
    revision,
    some,
    writing,
)
from tests.support.memory import add_fact, add_facts, applied
from tests.support.runtime import make_runtime

RUN = "e" * 24


@pytest.fixture
def scope(sqlite_store: Store) -> Scope:
    """Return a user scope with two facts, a pending reflection and a text."""
    eve, anna = make_agent("eve"), make_user("anna")
    sqlite_store.host.add_agent(eve)
    sqlite_store.host.add_user(anna)
    scope = Scope.user(eve.id, anna.id)
    applied(
        sqlite_store,
        AddFact(fact=make_fact(scope, "Anna lives in Lisbon.", formed_at=ago(days=2))),
        AddFact(fact=make_fact(scope, "Anna has two cats.", formed_at=ago(days=1))),
        AddReflection(reflection=make_reflection(scope, "She is brief."), word_limit=9),
        writing(scope, "Anna gardens.\n\n## Facts\n\n- in the evening"),
    )
    return scope


def export(store: Store, folder: Path, *, force: bool = False, **request: Any) -> Path:
    export_folder(store, folder, ExportRequest(**request), force=force)
    return folder


def take(
    store: Store, folder: Path, *, delete: bool = False, **options: Any
) -> tuple[Plan, ApplyReport]:
    """Plan and apply the edits in a folder."""
    plan = plan_edits(folder, store, delete=delete)
    actor = make_actor("edenmem import", run_id=RUN)
    runtime = make_runtime(store, actor=actor, clock=lambda: NOW)
    return plan, asyncio.run(apply_edits(plan.edits, runtime, **options))


def change(folder: Path, name: str, old: str, new: str) -> None:
    (path,) = folder.rglob(name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def facts(store: Store, scope: Scope) -> list[str]:
    return sorted(fact.content for fact in store.memory.facts(FactFilter(scopes=(scope,))))


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_folder_is_readable_and_stable(sqlite_store: Store, scope: Scope, tmp_path: Path) -> None:
    one = export(sqlite_store, tmp_path / "one")
    assert sorted(bytes_of(one)) == [
        "README.md",
        "eve/users/anna/facts.md",
        "eve/users/anna/reflections.md",
        "eve/users/anna/text.md",
    ]
    head, list_ = (one / "eve/users/anna/facts.md").read_text().split("---\n\n")
    assert "agent: eve\n" in head
    assert "updated_at: 2026-03-13T12:00:00.000Z\n" in head
    assert [line.split(" <!-- ")[0] for line in list_.splitlines()] == [
        "- Anna lives in Lisbon.",
        "- Anna has two cats.",
    ]
    assert bytes_of(export(sqlite_store, tmp_path / "two")) == bytes_of(one)
    assert {p.stat().st_mode & 0o777 for p in one.rglob("*.md")} == {0o600}
    plan, _ = take(sqlite_store, one, delete=True)
    assert (plan.edits, plan.conflicts, plan.problems, plan.files) == ([], [], [], 3)


def test_fields_are_kept_and_edited_beside_the_text(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    fields = FactFields(key="a-->b", tags=("home",), metadata={"note": "two\nlines"}, value={})
    fact = add_fact(sqlite_store, scope, "Anna rows.", **msgspec.structs.asdict(fields))
    folder = export(sqlite_store, tmp_path / "one")
    plan, _ = take(sqlite_store, folder, delete=True)
    assert (plan.edits, plan.conflicts, plan.problems) == ([], [], [])
    change(folder, "facts.md", '"home"', '"water","boats"')
    plan, report = take(sqlite_store, folder)
    (edit,) = plan.edits
    assert edit.shown[0].startswith('Anna rows. {"key":"a--\\u003eb"')
    assert report.done == 1
    now = some(sqlite_store.memory.fact(fact.id))
    assert now.fields == msgspec.structs.replace(fields, tags=("water", "boats"))
    assert now.version == 2
    plan, _ = take(sqlite_store, folder)
    assert (plan.edits, plan.conflicts) == ([], []), "the edit is made already"
    change(folder, "facts.md", '"boats"', '" "')
    plan, _ = take(sqlite_store, folder)
    assert [problem.reason for problem in plan.problems] == [
        "line 14: invalid fields of a fact: tag is empty, or has line breaks or outer spaces: ''"
    ]


def test_doubt_is_marked_beside_the_text(sqlite_store: Store, scope: Scope, tmp_path: Path) -> None:
    add_fact(sqlite_store, scope, "Anna may row.", unconfirmed="has no quote")
    folder = export(sqlite_store, tmp_path / "one")
    (listed,) = folder.rglob("facts.md")
    (line,) = [each for each in listed.read_text().splitlines() if "may row" in each]
    assert line.startswith("- Anna may row. <!-- ")
    assert line.endswith(" unconfirmed -->")
    plan, _ = take(sqlite_store, folder, delete=True)
    assert (plan.edits, plan.conflicts, plan.problems) == ([], [], [])


def test_public_files_become_private(sqlite_store: Store, scope: Scope, tmp_path: Path) -> None:
    """FAILURES 116."""
    folder = export(sqlite_store, tmp_path / "one")
    pages = sorted(folder.rglob("*.md"))
    for page in pages:
        page.chmod(0o644)
    export(sqlite_store, folder, force=True)
    assert {page.stat().st_mode & 0o777 for page in pages} == {0o600}


def test_edits_in_a_folder_are_audited_in_one_run(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    folder = export(sqlite_store, tmp_path / "notes")
    change(folder, "facts.md", "two cats", "three cats")
    (listed,) = folder.rglob("facts.md")
    with listed.open("a") as file:
        file.write("- Anna plays chess,\n  and wins.\n")
    change(folder, "reflections.md", "She is brief.", "She is very brief.")
    change(folder, "text.md", "gardens", "farms")
    plan, report = take(sqlite_store, folder)
    assert sorted((edit.action, edit.target) for edit in plan.edits) == [
        ("add", "fact"),
        ("edit", "consolidation"),
        ("edit", "fact"),
        ("edit", "reflection"),
    ]
    assert (report.done, report.refused) == (4, ())
    assert facts(sqlite_store, scope) == [
        "Anna has three cats.",
        "Anna lives in Lisbon.",
        "Anna plays chess,\nand wins.",
    ]
    assert [one.content for one in sqlite_store.memory.pending(scope)] == ["She is very brief."]
    text = sqlite_store.memory.consolidations([scope])[scope]
    assert text.consolidated_content.startswith("Anna farms.\n\n## Facts")
    assert sum(entry.actor.run_id == RUN for entry in sqlite_store.log.audit()) == 4
    again, _ = take(sqlite_store, folder)
    assert again.edits == []


def test_a_removed_line_deletes_only_with_the_option(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    """Known failure 51: a replacement must exist before the old entry is deleted."""
    folder = export(sqlite_store, tmp_path / "notes")
    (listed,) = folder.rglob("facts.md")
    kept = [line for line in listed.read_text().splitlines() if "Lisbon" not in line]
    listed.write_text("\n".join([*kept, "- Anna lives in Porto."]) + "\n")
    newer = make_fact(scope, "Made since.", formed_at=NOW)
    add_facts(sqlite_store, newer)
    plan = plan_edits(folder, sqlite_store, delete=False)
    assert ([edit.action for edit in plan.edits], plan.missing) == (["add"], 1)
    plan, report = take(sqlite_store, folder, delete=True)
    assert [edit.action for edit in plan.edits] == ["add", "delete"]
    assert report.done == 2
    assert facts(sqlite_store, scope) == [
        "Anna has two cats.",
        "Anna lives in Porto.",
        "Made since.",
    ]


def test_a_line_without_its_comment_is_not_a_deletion(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    folder = export(sqlite_store, tmp_path / "notes")
    (listed,) = folder.rglob("facts.md")
    rows = listed.read_text().splitlines()
    listed.write_text("\n".join(row.split(" <!-- ")[0] for row in rows) + "\n")
    assert plan_edits(folder, sqlite_store, delete=True).edits == []


def test_changes_on_both_sides_are_conflicts(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    """Known failure 15: the slower of two writers erased the other's text."""
    folder = export(sqlite_store, tmp_path / "notes")
    stale = export(sqlite_store, tmp_path / "stale")
    (fact,) = [
        f for f in sqlite_store.memory.facts(FactFilter(scopes=(scope,))) if "cats" in f.content
    ]
    applied(
        sqlite_store,
        revision(fact, "No cats.", scope=scope),
        writing(scope, "Rewritten.", expected_version=1),
    )
    change(folder, "facts.md", "two cats", "three cats")
    change(folder, "facts.md", "Lisbon", "Porto")
    change(folder, "text.md", "gardens", "farms")
    plan, report = take(sqlite_store, folder)
    assert sorted(conflict.reason for conflict in plan.conflicts) == [
        f"fact {fact.id} is now at version 2, not 1",
        "the text is now at version 2, not 1",
    ]
    assert report.done == 1
    assert facts(sqlite_store, scope) == ["Anna lives in Porto.", "No cats."]
    # an unedited file causes no conflict
    plan = plan_edits(stale, sqlite_store, delete=False)
    assert (plan.edits, plan.conflicts) == ([], [])


@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (["Two. {0}", "Three. {1}"], ["Three.", "Two."]),
        (["Two. {0}"], ["Two."]),
        (["New. {0}", "One.", "Two. {1}"], ["New.", "One.", "Two."]),
        (["Two. {0}", "One. {1}"], ["One.", "Two."]),
        (["Two. {0}", "One.", "Three. {1}"], ["One.", "Three.", "Two."]),
    ],
    ids=["shifted", "takes the place of one that goes", "added again", "swapped", "all at once"],
)
def test_swapped_texts_are_not_lost(
    sqlite_store: Store, tmp_path: Path, lines: list[str], left: list[str]
) -> None:
    """Known failure 51: one edit removed what another added."""
    eve = make_agent("eve")
    sqlite_store.host.add_agent(eve)
    scope = Scope.agent(eve.id)
    facts = [make_fact(scope, text, formed_at=ago(hours=1)) for text in ("One.", "Two.")]
    applied(sqlite_store, *(AddFact(fact=fact) for fact in facts), at=ago(hours=1))
    folder = export(sqlite_store, tmp_path / "notes")
    (listed,) = folder.rglob("facts.md")
    head = listed.read_text().partition("\n- ")[0]
    marks = [f"<!-- {fact.id} v1 -->" for fact in facts]
    listed.write_text(head + "".join(f"\n- {line.format(*marks)}" for line in lines) + "\n")
    for _ in range(3):  # an edit to a text that another fact still has waits for the next import
        take(sqlite_store, folder, delete=True)
    stored = sqlite_store.memory.facts(FactFilter(scopes=(scope,)))
    assert sorted(fact.content for fact in stored) == left


def test_a_refused_edit_does_not_stop_the_others(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    folder = export(sqlite_store, tmp_path / "notes")
    change(folder, "facts.md", "two cats.", "cats " * 40)
    change(folder, "facts.md", "Lisbon", "Porto")
    _, report = take(sqlite_store, folder)
    assert report.done == 1
    assert "the limit is 30" in report.refused[0].reason
    assert take(sqlite_store, folder, allow_long=True)[1].done == 1


def test_damaged_and_forged_files_are_listed(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    folder = export(sqlite_store, tmp_path / "notes")
    stranger = Scope.agent(scope.agent_id)
    other = make_fact(stranger, "Of another scope.")
    add_facts(sqlite_store, other)
    (listed,) = folder.rglob("facts.md")
    with listed.open("a") as file:
        file.write(f"- Stolen. <!-- {other.id} v1 -->\n- Ghost. <!-- {'d' * 24} v1 -->\n")
    for name, text in {
        "a.md": "---\nedenmem: 1\ncontent: facts\nscope: [\n---\n",
        "b.md": "---\nedenmem: 1\nscope: !!python/object/apply:os.system [ls]\n---\n",
        "c.md": "---\nedenmem: 1\ncontent: facts\nscope: user\nagent: eve\n---\n",
        "d.md": "---\nedenmem: 1\ncontent: facts\nscope: agent\nagent: nobody\n---\n",
        "e.md": "---\nedenmem: 1\ncontent: text\nscope: agent\nagent: 7\n---\n",
        "mine.md": "# My own notes\n",
    }.items():
        (folder / name).write_text(text)
    (folder / "f.md").write_bytes(b"\xff\xfe")
    (folder / "link.md").symlink_to(listed)
    os.mkfifo(folder / "pipe.md")
    (folder / "copy.md").write_text(listed.read_text())
    plan, report = take(sqlite_store, folder)
    problems = {problem.path for problem in plan.problems}
    assert problems >= {"a.md", "b.md", "c.md", "d.md", "e.md", "f.md", "pipe.md"}
    assert "mine.md" not in problems
    assert "link.md" not in problems
    assert any("belongs to another scope" in problem.reason for problem in plan.problems)
    assert any("has the same" in problem.reason for problem in plan.problems)
    assert [conflict.reason for conflict in plan.conflicts] == [f"fact {'d' * 24} no longer exists"]
    assert (plan.edits, report.done) == ([], 0)


def test_a_new_file_may_use_names_for_its_scope(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    (tmp_path / "new.md").write_text(
        "---\nedenmem: 1\ncontent: facts\nagent: eve\nscope: agent\n---\n# List\n\n- Tea is hot.\n"
    )
    _, report = take(sqlite_store, tmp_path)
    assert report.done == 1
    assert facts(sqlite_store, Scope.agent(scope.agent_id)) == ["Tea is hot."]


def test_a_folder_is_updated_only_with_force(
    sqlite_store: Store, scope: Scope, tmp_path: Path
) -> None:
    folder = export(sqlite_store, tmp_path / "notes")
    (folder / "mine.md").write_text("# My own\n")
    (folder / ".git").mkdir()
    with pytest.raises(ConflictError):
        export(sqlite_store, folder)
    assert sqlite_store.host.user(scope.owner)
    for fact in list(sqlite_store.memory.facts(FactFilter(scopes=(scope,)))):
        applied(sqlite_store, removal(fact, scope=scope))
    export(sqlite_store, folder, force=True)
    assert not list(folder.rglob("facts.md"))
    assert (folder / "mine.md").exists()
    assert (folder / ".git").exists()


def test_names_stay_in_the_folder_and_are_unique(sqlite_store: Store, tmp_path: Path) -> None:
    """Known failure 50: an ID with .. left the folder; two IDs became one file name."""
    names = [
        "../../evil",
        "/etc/passwd",
        "con",
        "Anna",
        "anna",
        "e\u0301ve",
        "\u00e9ve",
        "a/b",
        "a\\b",
    ]
    eve = make_agent("..")
    sqlite_store.host.add_agent(eve)
    for name in names:
        user = make_user(name)
        sqlite_store.host.add_user(user)
        fact = make_fact(Scope.user(eve.id, user.id), f"Of {name!r}.")
        add_facts(sqlite_store, fact)
    for group in ("..", ".", "g"):
        fact = make_fact(Scope.group(eve.id, group), "A fact.")
        add_facts(sqlite_store, fact)
    folder = export(sqlite_store, tmp_path / "deep" / "notes")
    files = sorted(folder.rglob("facts.md"))
    assert len(files) == len(names) + 3
    assert len({fold_name(str(path)) for path in files}) == len(files)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["notes"]
    assert plan_edits(folder, sqlite_store, delete=True).edits == []


@pytest.mark.slow
@settings(max_examples=150)
@given(st.dictionaries(st.text(max_size=6), st.text(max_size=12), max_size=6))
def test_names_are_safe_and_stable(labels: dict[str, str]) -> None:
    names = file_names(labels)
    assert file_names(dict(reversed(list(labels.items())))) == names
    assert len({fold_name(name) for name in names.values()}) == len(labels)
    for name in names.values():
        assert name
        assert len(name.encode()) <= 110
        assert not set(name) & set('/\\:*?"<>|\0')
        assert not name.startswith(".")
        assert name == name.rstrip(" .")


texts = st.text(max_size=60).map(lambda text: clean(text).strip()).filter(bool)
lines = (
    st.text(st.sampled_from("ab -*#<>!\n\t\\`é漢"), max_size=30)
    .map(lambda text: clean(text).strip())
    .filter(bool)
)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(texts | lines, max_size=4), texts | lines)
def test_any_text_survives_a_round_trip(contents: list[str], text: str) -> None:
    def tidy(given: str) -> str:
        return "\n".join(line.rstrip() for line in given.split("\n")).strip()

    head = {"content": "facts", "agent": "eve", "agent_id": "1" * 24, "scope": "agent"}
    items = tuple(
        Item(id=f"{number:024x}", content=content, version=number + 1, private=bool(number % 2))
        for number, content in enumerate(contents)
    )
    page = some(parse(render(Page(head=head, items=items))))
    assert [msgspec.structs.replace(i, line=0, content=tidy(i.content)) for i in page.items] == [
        msgspec.structs.replace(i, content=tidy(i.content)) for i in items
    ]
    whole = some(parse(render(Page(head={**head, "content": "text"}, text=text))))
    assert tidy(whole.text) == tidy(text)


@settings(max_examples=100)
@given(st.text(st.sampled_from("-edenm: 1\n<!>vab[]{}&*'\"#|>"), max_size=80))
def test_no_file_can_break_an_import(text: str) -> None:
    for file in (
        text,
        f"---\nedenmem: 1\n{text}\n---\n",
        f"---\nedenmem: 1\ncontent: text\n---\n{text}",
    ):
        try:
            parse(file)
        except InputError:
            continue
