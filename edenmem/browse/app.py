"""The application: scopes on the left, the contents of the open scope on the right."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, ClassVar

from textual import events, on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Input, OptionList, Static, Tab, Tabs

from edenmem.browse import memory, words
from edenmem.browse.memory import LISTS, LabeledScope
from edenmem.browse.widgets import Question, Reader, Rows, TextEditor, guard
from edenmem.browse.words import TextVersion
from edenmem.engine.context.recall import RecallMode
from edenmem.engine.edits.editor import Editor
from edenmem.engine.edits.reviewer import Reviewer
from edenmem.engine.history.undo import UndoOutcome
from edenmem.engine.reports import EditReport
from edenmem.engine.runtime.concurrency import in_thread
from edenmem.engine.service import MemoryService
from edenmem.models.changes import AuditEntry
from edenmem.models.memory import Fact, Reflection, ReviewItem
from edenmem.settings.schema import Settings
from edenmem.text import many, printable

#: Width below which the list of scopes is narrower.
_NARROW = 70

_TABS = ("Facts", "Reflections", "Text", "History", "Log", "Search", "Review")

_HELP = """\
Arrow keys, j and k, Page Up/Down move, Tab goes to the next
pane. The mouse works everywhere.

f      filter scopes by all words of the filter; letters
       without a command also start the filter
Enter  go to the contents of the highlighted scope
1 … 7  facts, reflections, text, history, log, search,
       and what waits for review in all scopes of the agent
Esc    back to the scopes

/      search the agent, its shards and the open scope
e      edit the fact, reflection or text
d      delete the fact or reflection, or reject the item
a      accept the item that waits for review
u, z   undo the highlighted log entry, or on other tabs
       the latest change in the scope
w      show the origin of the fact, reflection or text
c      show the context of the latest session
r      reload
q      quit

All changes are logged; 'edenmem undo' also undoes them.
--read-only disables changes."""


#: Actions that need an open scope, and those that change memory.
_IN_SCOPE = frozenset({"search", "edit", "delete", "accept", "undo", "why", "context"})
_WRITES = frozenset({"edit", "delete", "accept", "undo"})

#: Tab → text without rows.
_EMPTY = {
    "facts": "no facts",
    "reflections": "no reflections",
    "history": "no text yet",
    "log": "no changes",
    "review": "nothing waits for review",
}


class Browser(App[None]):
    """The browser application."""

    TITLE = "edenmem"
    CSS_PATH = "browse.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "search", "search", key_display="/"),
        Binding("e", "edit", "edit"),
        Binding("a", "accept", "accept"),
        Binding("d", "delete", "delete"),
        Binding("u,z", "undo", "undo", key_display="u"),
        Binding("w", "why", "why"),
        Binding("c", "context", "context"),
        Binding("question_mark", "help", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("f", "filter", "Filter", show=False),
        Binding("r", "refresh", "Reload", show=False),
        Binding("escape", "leave", "Back", show=False),
        *(
            Binding(str(number), f"tab('{name.lower()}')", name, show=False)
            for number, name in enumerate(_TABS, 1)
        ),
    ]

    def __init__(self, service: MemoryService, settings: Settings) -> None:
        super().__init__(ansi_color=True if "NO_COLOR" in os.environ else None)
        self._service = service
        self._is_read_only = settings.store.read_only
        # Browsing never pays for a language model.
        self._recall: RecallMode | None = "off" if settings.context.recall == "llm" else None
        self._scopes: list[LabeledScope] = []
        self._chosen: LabeledScope | None = None
        self._found = ""
        self._search_info = ""
        self._decided: str | None = None

    def compose(self) -> ComposeResult:
        """Lay out the heading, two panes and the keys."""
        yield Static(id="heading")
        with Horizontal(id="panes"):
            with Vertical(id="left"):
                yield Input(
                    placeholder="f: filter scopes",
                    id="filter",
                    compact=True,
                    select_on_focus=False,
                )
                yield Rows(id="scopes")
            with Vertical(id="right"):
                yield Tabs(*(Tab(name, id=name.lower()) for name in _TABS))
                yield Input(placeholder="search, then Enter", id="query", compact=True)
                yield Rows(id="items")
                yield Static(id="info")
                with VerticalScroll(id="detail"):
                    yield Static(id="text")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Read the scopes."""
        if self.no_color:
            self.theme = "ansi-dark"
        self._main.query_one("#scopes").focus()
        self._update_heading("loading …")
        self.show_tab()
        self.read_scopes()

    # -- parts of the screen ---------------------------------------------------------------------

    @property
    def _main(self) -> Screen[Any]:
        return self.screen_stack[0]

    def _rows(self, name: str) -> Rows:
        return self._main.query_one(f"#{name}", Rows)

    def _static(self, name: str) -> Static:
        return self._main.query_one(f"#{name}", Static)

    @property
    def _tab(self) -> str:
        return self._main.query_one(Tabs).active or "facts"

    @property
    def _item(self) -> object:
        """Return the item of the highlighted row."""
        row = self._rows("items").current if self._tab != "text" else None
        return row.item if row is not None else None

    def on_resize(self, event: events.Resize) -> None:
        """Switch to the narrow layout on a small screen."""
        self._main.set_class(event.size.width < _NARROW, "narrow")
        self.call_after_refresh(self.filter_scopes)

    # -- scopes ----------------------------------------------------------------------------------

    @work(exclusive=True, group="scopes")
    async def read_scopes(self) -> None:
        """Read the scopes in batches, and show the first batch immediately."""
        batches = memory.read_labeled(self._service)
        scopes: list[LabeledScope] = []

        def read() -> list[LabeledScope]:
            return next(batches, [])

        while (batch := await guard(self, in_thread(read))) != []:
            if batch is None:
                self._update_heading("loading failed; press r to retry")
                return
            is_first = not scopes and not self._scopes
            scopes += batch
            if is_first:
                self._scopes = sorted(scopes, key=lambda labeled: labeled.order)
                self.filter_scopes()
        self._scopes = sorted(scopes, key=lambda labeled: labeled.order)
        chosen = self._chosen
        if chosen is not None:  # with its current sizes; an emptied scope stays open
            now = (labeled for labeled in scopes if labeled.scope == chosen.scope)
            self._chosen = next(now, chosen)
        self.filter_scopes()
        self._update_heading()

    @on(Input.Changed, "#filter")
    def filter_scopes(self) -> None:
        """Show the scopes that match the filter."""
        typed = self._main.query_one("#filter", Input).value.casefold().split()
        rows = self._rows("scopes")
        found = [labeled for labeled in self._scopes if labeled.matches(typed)]
        width = rows.scrollable_content_region.width
        rows.show_now(memory.scope_rows(found, width), keep=True)

    @on(Input.Submitted, "#filter")
    def leave_filter(self) -> None:
        """Open the highlighted scope."""
        self._rows("scopes").action_select()

    @on(OptionList.OptionHighlighted, "#scopes")
    @on(Rows.Changed, "#scopes")
    def preview_scope(self) -> None:
        """Show the contents of the highlighted scope while its list has the focus."""
        if not self.screen_stack:
            return  # the application is ending
        rows = self._rows("scopes")
        is_choosing = self.focused in (rows, self._main.query_one("#filter"))
        if rows.current is not None and (is_choosing or self._chosen is None):
            self._open(rows.current.item)

    @on(OptionList.OptionSelected, "#scopes")
    def enter_scope(self, event: OptionList.OptionSelected) -> None:
        """Go to the contents of a scope."""
        row = self._rows("scopes").at(event.option_index)
        if row is None:
            return
        self._open(row.item)
        if self._tab == "text":
            self._main.query_one("#detail").focus()
        else:
            self._rows("items").focus()

    def _open(self, labeled: LabeledScope) -> None:
        if self._chosen is not None and self._chosen.scope == labeled.scope:
            return
        self._chosen = labeled
        self._found = ""
        self._main.query_one("#query", Input).value = ""
        if self._tab == "search":
            self._main.query_one(Tabs).active = "facts"
        else:
            self.show_tab()
        self._update_heading()
        self.refresh_bindings()

    def _update_heading(self, text: str = "") -> None:
        if self._chosen is not None and not text:
            text = f"{words.line(self._chosen.name)}  {words.sizes(self._chosen.status)}"
        parts: list[Any] = [("edenmem ", "bold")]
        if self._is_read_only:
            parts.append((" read-only ", "reverse"))
        text = text or many(len(self._scopes), "scope")
        self._static("heading").update(Content.assemble(*parts, " ", text))

    # -- tabs ------------------------------------------------------------------------------------

    @on(Tabs.TabActivated)
    def _tab_activated(self) -> None:
        self.show_tab()

    def show_tab(self, *, keep: bool = False) -> None:
        """Reload the tab; ``keep`` keeps the highlighted row."""
        tab, opened = self._tab, self._chosen
        self.refresh_bindings()
        rows = self._rows("items")
        rows.display = tab != "text" and opened is not None
        self._static("info").display = rows.display
        self._main.query_one("#query").display = tab == "search" and opened is not None
        if opened is None:
            self._show_detail()
        elif tab == "text":
            rows.show_now([])
            self.show_text(opened)
        elif tab == "search":
            if self._found:
                self.run_search(self._found, keep=keep)
            else:
                rows.show_now([])
        else:
            scope = opened.scope
            rows.show(lambda: LISTS[tab](self._service, scope), keep=keep)

    @work(exclusive=True, group="detail")
    async def show_text(self, opened: LabeledScope) -> None:
        """Show the text of a scope."""

        async def read() -> Content:
            return words.text_detail(await in_thread(self._service.memory.text, opened.scope))

        text = await guard(self, read())
        if text is not None:
            self._put_detail(text)

    @on(OptionList.OptionHighlighted, "#items")
    @on(Rows.Changed, "#items")
    def _show_detail(self) -> None:
        """Show the highlighted item, and the number of rows."""
        if self._chosen is None:
            self._put_detail(Content(""))
        elif self._tab != "text":
            self._put_detail(words.detail(self._item))
            rows = self._rows("items")
            number = len(rows.rows)
            total = self._chosen.status.facts if self._tab == "facts" else 0
            more = f"{max(total, number):,}" if total else f"{number:,}{'+' * rows.has_more}"
            if self._tab == "search":
                info = self._search_info if self._found else ""
            elif rows.rows:
                info = f"{(rows.highlighted or 0) + 1:,} of {more}"
            else:
                info = _EMPTY[self._tab]
            self._static("info").update(Content(info))

    def _put_detail(self, text: Content) -> None:
        self._static("text").update(text)
        self._main.query_one("#detail").scroll_home(animate=False)

    # -- keys ------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Dim the keys that need an open scope, or that a read-only store refuses."""
        if action == "accept" and self._tab != "review":
            return False
        if action in _IN_SCOPE and self._chosen is None:
            return None
        return None if action in _WRITES and self._is_read_only else True

    def on_key(self, event: events.Key) -> None:
        """Start the filter on letters without a command, and leave it on the down arrow.

        A dimmed key says why it does nothing.
        """
        command = self.screen.active_bindings.get(event.key)
        if command is not None and not command.enabled:
            why = "The store is read-only." if self._chosen else "There is no scope yet."
            self.notify(why, severity="warning")
        elif self.focused is self._main.query_one("#filter") and event.key == "down":
            self._rows("scopes").focus()
        elif (
            self.focused is self._rows("scopes")
            and event.is_printable
            and event.character
            and event.character.isalpha()
            and event.key not in self.screen.active_bindings
        ):
            typed = self._main.query_one("#filter", Input)
            self._main.set_focus(typed)
            typed.insert_text_at_cursor(event.character)
            event.stop()

    async def action_quit(self) -> None:
        """Quit, after asking about unsaved text."""
        editors = [screen for screen in self.screen_stack if isinstance(screen, TextEditor)]
        if not any(editor.is_changed for editor in editors):
            await super().action_quit()
        elif self.screen in editors:
            editors[0].action_leave()

    def action_filter(self) -> None:
        """Focus the filter."""
        self._main.set_focus(self._main.query_one("#filter"))  # before the next key

    def action_leave(self) -> None:
        """Return to the scopes, or clear the filter there."""
        rows = self._rows("scopes")
        if self.focused in (rows, self._main.query_one("#filter")):
            self._main.query_one("#filter", Input).value = ""
        rows.focus()

    def action_tab(self, name: str) -> None:
        """Switch to a tab."""
        self._main.query_one(Tabs).active = name
        if self._chosen is not None:
            names = {"text": "#detail", "search": "#query"}
            self._main.query_one(names.get(name, "#items")).focus()

    def action_search(self) -> None:
        """Switch to the search."""
        self.action_tab("search")

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Reader("Keys", Content(_HELP)))

    def action_refresh(self) -> None:
        """Reload everything."""
        self.read_scopes()
        self.show_tab(keep=True)

    @property
    def _open_scope(self) -> LabeledScope:
        """Return the open scope, for keys that are dimmed without one."""
        assert self._chosen is not None
        return self._chosen

    # -- search ----------------------------------------------------------------------------------

    @on(Input.Submitted, "#query")
    def _search(self, event: Input.Submitted) -> None:
        if query := event.value.strip():
            self.run_search(query)

    @work(exclusive=True, group="search")
    async def run_search(self, query: str, *, keep: bool = False) -> None:
        """Search, and show each result with its explanation."""
        opened = self._chosen
        if opened is None:
            return
        self._static("info").update("searching …")
        report = await guard(self, memory.search(self._service, opened.scope, query))
        if report is None:
            self._static("info").update("")
            return
        for notice in report.notices:
            self.notify(printable(notice), severity="warning", markup=False)
        found = await guard(self, in_thread(memory.hit_rows, self._service, report))
        if found is None or self._chosen is not opened or self._tab != "search":
            return
        self._found = query
        milliseconds = sum(report.timings_ms.values())
        dropped = words.dropped_summary([each.stage for each in report.dropped])
        parts = (f"{len(found)} found", f"{report.recipe}, {milliseconds:.0f} ms", dropped)
        self._search_info = " · ".join(filter(None, parts))
        rows = self._rows("items")
        rows.show_now(found, keep=keep)
        if found and not keep:
            rows.focus()

    # -- changes ---------------------------------------------------------------------------------

    async def _read_target(self) -> Fact | Reflection | None:
        """Read the current state of the fact or reflection to change."""
        return await guard(self, in_thread(memory.read_target, self._service, self._item))

    @work(exclusive=True, group="change")
    async def action_edit(self) -> None:
        """Edit the highlighted item or the text."""
        chosen = self._open_scope
        target = await self._read_target()
        item = target or self._item
        if isinstance(item, Reflection) and item.absorbed:
            self.notify("This reflection is already in the text: edit the text.")
            return
        if isinstance(item, Fact | Reflection | ReviewItem):
            draft = memory.draft_of(item)
        elif self._tab == "text":
            opened = await guard(
                self, in_thread(memory.text_draft, self._service, chosen.scope, chosen.name)
            )
            if opened is None:
                return
            draft = opened
        else:
            self.notify("Highlight a fact or reflection to edit, or open the text.")
            return
        report = await self.push_screen_wait(TextEditor(self._service, draft))
        if report is None:
            return
        for notice in report.notices:
            self.notify(printable(notice), markup=False)
        if report.action != "none":
            self.notify("Saved. Press u to undo.")
        self.action_refresh()

    @work(exclusive=True, group="change")
    async def action_accept(self) -> None:
        """Accept the highlighted item, in place of the fact that it resembles."""
        item = self._item
        if not isinstance(item, ReviewItem):
            return
        reviewed = await guard(self, self._service.review_item(item.id))
        if reviewed is None:
            return
        near = reviewed.near if item.state == "held" else None
        question = Question(f"Accept this {item.kind}?", words.detail(item), yes="Accept")
        if near is not None:
            about = words.diff(near.content, item.content)
            what = "Accept it in place of the fact that it resembles?"
            question = Question(what, about, yes="Replace")
        await self._decide(
            question,
            lambda reviewer: reviewer.accept(
                item.id, replaces=near.id if near else None, version=item.version
            ),
            "Accepted. Press u to undo.",
        )

    async def _decide(
        self, question: Question, work: Callable[[Reviewer], EditReport], done: str
    ) -> None:
        """Make a change after a confirmation."""
        if not await self.push_screen_wait(question):
            return
        report = await guard(self, self._service.edit(work))
        if report is not None:
            self._decided = report.result.change_id if report.result else None
            self.notify(done)
        self.action_refresh()

    @work(exclusive=True, group="change")
    async def action_delete(self) -> None:
        """Delete the highlighted item after a confirmation."""
        item = self._item
        if isinstance(item, ReviewItem):
            await self._decide(
                Question(f"Reject this {item.kind}?", words.detail(item), yes="Reject"),
                lambda reviewer: reviewer.reject(item.id, version=item.version),
                "Rejected. Press u to undo.",
            )
            return
        target = await self._read_target()
        if target is None:
            self.notify("Highlight a fact or reflection to delete.")
            return
        kind = type(target).__name__.lower()

        def delete(editor: Editor) -> EditReport:
            return editor.delete(target.id, expected_version=target.version)

        question = Question(
            f"Delete this {kind}?", Content(words.shown(target.content)), yes="Delete"
        )
        await self._decide(question, delete, "Deleted. Press u to undo.")

    @work(exclusive=True, group="change")
    async def action_undo(self) -> None:
        """Undo the highlighted log entry, or the latest change in the scope."""
        opened = self._open_scope
        item = self._item
        if self._tab == "log" and isinstance(item, AuditEntry):
            entry: AuditEntry | None = item
        elif self._tab == "review" and self._decided:  # in any scope
            entry = await guard(self, in_thread(self._service.history.entry, self._decided))
        else:
            entry = await guard(
                self, in_thread(memory.find_latest_change, self._service, opened.scope)
            )
        if entry is None:
            self.notify("Nothing to undo in this scope.")
            return
        entry_id, undo = entry.id, self._service.undo
        plan = await guard(self, in_thread(undo.plan, entry_id, force=False))
        if plan is None:
            return
        if plan.outcome is UndoOutcome.ALREADY:
            self.notify(printable(f"Nothing to do: {plan.why}"), markup=False)
            return
        is_refused = plan.outcome is UndoOutcome.REFUSED
        if is_refused and not plan.forceable:
            self.notify(
                printable(f"Cannot undo this: {plan.why}"), severity="warning", markup=False
            )
            return
        question = "Undo this and overwrite later changes?" if is_refused else "Undo this?"
        yes = "Undo anyway" if is_refused else "Undo"
        if not await self.push_screen_wait(Question(question, words.undo_plan(plan), yes=yes)):
            return
        step = await guard(self, in_thread(undo.entry, entry_id, force=is_refused, reason=""))
        if step is not None and step.outcome is UndoOutcome.DONE:
            self.notify("Undone. To redo, undo the new entry in the log.")
            if undo.missing and (notice := await guard(self, undo.make_vectors(undo.missing))):
                self.notify(printable(notice), severity="warning", markup=False)
        elif step is not None:
            self.notify(printable(f"Not undone: {step.why}"), severity="warning", markup=False)
        self.action_refresh()

    # -- why and context -------------------------------------------------------------------------

    @work(exclusive=True, group="why")
    async def action_why(self) -> None:
        """Show the origin of the highlighted item or the text."""
        opened = self._open_scope
        service, item = self._service, self._item
        target = await self._read_target()
        if isinstance(target, Fact):
            text = await guard(self, in_thread(memory.explain_fact, service, target.id))
        elif isinstance(target, Reflection):
            text = await guard(self, in_thread(memory.explain_reflection, service, target))
        elif isinstance(item, AuditEntry) and item.target_type == "fact":
            text = await guard(self, in_thread(memory.explain_fact, service, item.target_id))
        elif self._tab in ("text", "history"):
            version = item.version.version if isinstance(item, TextVersion) else None
            text = await guard(self, in_thread(memory.explain_text, service, opened.scope, version))
        else:
            self.notify("Highlight a fact, reflection or text to see its origin.")
            return
        if text is not None:
            self.push_screen(Reader("Why", text))

    @work(exclusive=True, group="why")
    async def action_context(self) -> None:
        """Show the context of the latest session with the scope in it, without writing the cache.

        The agent gets this context, as from `edenmem context`.
        """
        opened, service = self._open_scope, self._service
        session = await guard(self, in_thread(memory.latest_session, service, opened.scope))
        if session is None:
            self.notify("No sessions. A context belongs to a session of the agent.")
            return
        building = service.assemble_context(
            session.id, agent_id=opened.scope.agent_id, recall=self._recall, keep=False, told=False
        )
        if (report := await guard(self, building)) is not None:
            title = f"Context of {words.line(opened.agent)} in {words.line(session.label)}"
            self.push_screen(Reader(title, words.context(report)))
