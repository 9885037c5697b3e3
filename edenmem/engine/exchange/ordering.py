"""The order of edits: a fact may say what another one said only when that one says it no more.

A scope has each fact once, so an edit to what another fact still says takes one of the two away,
although the file has both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Protocol, TypeVar

from edenmem.models.scope import Scope

_ACTIONS = ("add", "edit", "delete")


class _Edit(Protocol):
    @property
    def action(self) -> str: ...
    @property
    def target(self) -> str: ...
    @property
    def scope(self) -> Scope: ...
    @property
    def before(self) -> str: ...
    @property
    def after(self) -> str: ...


_T = TypeVar("_T", bound=_Edit)


def in_order(edits: Iterable[_T]) -> tuple[list[_T], list[_T]]:
    """The edits in the order in which they are made, and those that wait for each other.

    Nothing is taken away before what takes its place is there, unless it is in the way of it.
    """
    waiting = sorted(edits, key=lambda edit: _ACTIONS.index(edit.action))
    said = Counter(_said(edit) for edit in waiting if _is_in_the_way(edit))
    ready: list[_T] = []
    while True:
        later: list[_T] = []
        for edit in waiting:
            if edit.target == "fact" and edit.after and said[edit.scope, edit.after.strip()]:
                later.append(edit)
                continue
            ready.append(edit)
            if _is_in_the_way(edit):
                said[_said(edit)] -= 1
        if not later or len(later) == len(waiting):
            return ready, later
        waiting = later


def _is_in_the_way(edit: _Edit) -> bool:
    return edit.target == "fact" and bool(edit.before)


def _said(edit: _Edit) -> tuple[Scope, str]:
    return edit.scope, edit.before.strip()
