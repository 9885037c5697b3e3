"""Generate the synchronous facade from the asynchronous classes.

``python -m tests.support.sync_facade`` writes ``edenmem/engine/sync.py``; a test compares.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "edenmem" / "engine" / "sync.py"

#: The asynchronous classes by module.
SOURCES = {
    "edenmem.engine.service": "MemoryService",
    "edenmem.engine.agent_memory": "AgentMemory",
}

#: Methods in the header, not generated.
_BY_HAND = {"close"}

_HEADER = '''"""`SyncMemoryService`: `MemoryService` for programs without an event loop.

Generated from the asynchronous classes by ``python -m tests.support.sync_facade``; do not edit.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from edenmem.engine.runtime.loop_thread import LoopThread
{runtime}
if TYPE_CHECKING:
{typing}

T = TypeVar("T")


class SyncMemoryService:
    """`MemoryService` with blocking methods, safe for any number of threads.

    ``service`` is the asynchronous service; its operator properties block anyway. It runs in an
    event loop on a separate thread, so that callers may have a running loop.
    """

    def __init__(self, service: MemoryService) -> None:
        self.service = service
        self._loop = LoopThread()

    @classmethod
    def from_settings(
        cls, settings: Settings | None = None, *, actor: Actor | None = None
    ) -> Self:
        """Return a service for the configured store and models.

        See `MemoryService.from_settings`.
        """
        return cls(MemoryService.from_settings(settings, actor=actor))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the store and the models. Closing twice is safe."""
        if self._loop.is_closed:
            return
        try:
            self._loop.run(self.service.close())
        finally:
            self._loop.close()

{service}

class SyncAgentMemory:
    """`AgentMemory` with blocking methods, from `SyncMemoryService.memory_for`.

    ``memory`` is the asynchronous object.
    """

    def __init__(self, memory: AgentMemory, loop: LoopThread) -> None:
        self.memory = memory
        self._loop = loop

{memory}
'''


def _methods(module: str) -> Iterator[ast.AsyncFunctionDef]:
    """Yield the public asynchronous methods."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef) and node.name == SOURCES[module]:
            for method in node.body:
                if (
                    isinstance(method, ast.AsyncFunctionDef)
                    and not method.name.startswith("_")
                    and not method.decorator_list
                    and method.name not in _BY_HAND
                ):
                    yield method


def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text("utf-8"))


def _render(method: ast.AsyncFunctionDef, target: str, kind: str) -> str:
    arguments = method.args
    returns = ast.unparse(method.returns) if method.returns else "None"
    passed = [each.arg for each in arguments.args[1:]]
    passed += [f"{each.arg}={each.arg}" for each in arguments.kwonlyargs]
    passed += [f"**{arguments.kwarg.arg}"] if arguments.kwarg else []
    call = f"self._loop.run(self.{target}.{method.name}({', '.join(passed)}))"
    if returns == "AgentMemory":
        returns, call = "SyncAgentMemory", f"SyncAgentMemory({call}, self._loop)"
    summary = (ast.get_docstring(method) or "").split("\n\n")[0].replace("\n", "\n        ")
    return (
        f"    def {method.name}({ast.unparse(arguments)}) -> {returns}:\n"
        f'        """{summary}\n\n        See `{kind}.{method.name}`.\n        """\n'
        f"        return {call}\n"
    )


def _names(tree: ast.AST | None) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree else set()


def _imports(module: str) -> dict[str, str]:
    """Map imported names to their modules."""
    found = {node.name: module for node in _tree(module).body if isinstance(node, ast.ClassDef)}
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {alias.name: node.module for alias in node.names}
    return found


def source() -> str:
    """Return the source of the module."""
    homes: dict[str, str] = {}
    runtime, typing = {"MemoryService"}, {"Settings", "Actor", "AgentMemory"}
    for module in SOURCES:
        homes |= _imports(module)
        for method in _methods(module):
            defaults = [*method.args.defaults, *method.args.kw_defaults]
            runtime |= {name for each in defaults for name in _names(each)}
            annotated = [*method.args.args, *method.args.kwonlyargs, method.args.kwarg]
            for argument in annotated:
                typing |= _names(argument.annotation) if argument else set()
            typing |= _names(method.returns)
    ours = {name for name in typing if name in homes and name not in runtime}
    ours -= {"Any", "Unpack", "TypeVar", "Self", "TYPE_CHECKING"}
    lines = {
        "runtime": [f"from {homes[name]} import {name}" for name in sorted(runtime)],
        "typing": [f"    from {homes[name]} import {name}" for name in sorted(ours)],
    }
    service, memory = (
        "\n".join(_render(each, target, SOURCES[module]) for each in _methods(module))
        for module, target in zip(SOURCES, ("service", "memory"), strict=True)
    )
    text = _HEADER.format(
        runtime="\n".join(lines["runtime"]) + "\n",
        typing="\n".join(lines["typing"]),
        service=service,
        memory=memory,
    )
    return _ruff(_ruff(text, "check", "--fix", "--select", "I,F401"), "format")


def _ruff(text: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(TARGET)]
    done = subprocess.run(
        [*command, "-"], input=text, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


if __name__ == "__main__":
    TARGET.write_text(source(), "utf-8")
