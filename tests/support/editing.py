"""The editor for programs with an event loop."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from edenmem.engine.edits.editor import make_edit
from edenmem.engine.reports import EditReport
from edenmem.engine.runtime.runtime import Runtime


class AwaitedEditor:
    """An `Editor` with asynchronous methods; texts of facts get vectors."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Coroutine[Any, Any, EditReport]:
            return make_edit(self._runtime, lambda editor: getattr(editor, name)(*args, **kwargs))

        return call
