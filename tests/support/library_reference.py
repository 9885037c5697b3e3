"""Generate the reference of the library from its docstrings, for `tests.support.readme`."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from functools import cache
from pathlib import Path

import edenmem

#: Classes with all their methods.
_WHOLE = ("MemoryService", "AgentMemory")

#: Other names by subject, with the first line of each docstring.
_SUBJECTS = {
    "Without an event loop": ("SyncMemoryService", "SyncAgentMemory"),
    "Setting up": (
        *("load_settings", "Settings", "open_store", "open_llm", "open_embedder", "open_reranker"),
        *("Store", "Actor", "import_sessions", "new_id", "SearchOptions", "Trigger"),
    ),
    "Stored objects": (
        *("Agent", "User", "Session", "Message", "ToolCall", "Fact", "FactFields", "Reflection"),
        *("Consolidation", "Policy", "Scope", "ScopeKind"),
    ),
    "Results": (
        *("ContextReport", "FormationReport", "ConsolidationReport", "SearchReport", "SearchHit"),
        *("MemoryHit", "EditReport", "FactOrigin", "MemoryStats", "ScopeStatus"),
    ),
    "For operators": ("Editor", "Resolver"),
    "Errors": (
        *("EdenmemError", "UsageError", "ConfigError", "ScopeError", "InputError"),
        *("AmbiguousReference", "NotFoundError", "ConflictError", "UnavailableError"),
        *("StoreError", "EmbeddingModelMismatch", "ProviderError", "ExitCode"),
    ),
}


def reference() -> str:
    """Return the reference as Markdown."""
    listed = {*_WHOLE, "__version__", *(name for names in _SUBJECTS.values() for name in names)}
    assert listed == set(edenmem.__all__), listed ^ set(edenmem.__all__)
    parts = [_class(name) for name in _WHOLE]
    for subject, names in _SUBJECTS.items():
        rows = "".join(f"| `{name}` | {_summary(getattr(edenmem, name))} |\n" for name in names)
        parts.append(f"## {subject}\n\n| name | what it is |\n|---|---|\n{rows}")
    return "\n" + "\n".join(parts) + "\n"


def _class(name: str) -> str:
    kind = getattr(edenmem, name)
    parts = [f"## {name}\n", _markdown(inspect.getdoc(kind) or "")]
    for method in _definition(kind).body:
        if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        decorators = {ast.unparse(each) for each in method.decorator_list}
        if method.name.startswith("_") or decorators & {"property", "cached_property"}:
            continue
        parts.append(f"### `{_signature(method)}`\n")
        parts.append(_markdown(ast.get_docstring(method) or ""))
    return "\n".join(parts)


@cache
def _definition(kind: type) -> ast.ClassDef:
    module = importlib.import_module(kind.__module__)
    tree = ast.parse(Path(module.__file__ or "").read_text("utf-8"))
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind.__name__)


def _signature(method: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    prefix = "await " if isinstance(method, ast.AsyncFunctionDef) else ""
    given = re.sub(r"^(self|cls)(, )?", "", ast.unparse(method.args))
    return f"{prefix}{method.name}({given})"


def _summary(thing: object) -> str:
    first = (inspect.getdoc(thing) or "").split("\n\n")[0]
    return " ".join(first.split()).replace("|", "\\|").replace("``", "`")


def _markdown(docstring: str) -> str:
    """Convert a docstring to Markdown, with lists of arguments and errors."""
    parts = []
    for part in docstring.split("\n\n"):
        title = re.match(r"(Args|Raises|Returns):\n", part)
        if title is None:
            parts.append(part if part.startswith(" ") else " ".join(part.split()))
            continue
        body = textwrap.dedent(part[title.end() :])
        if title[1] == "Returns":
            parts.append(f"Returns: {' '.join(body.split())}")
            continue
        items = re.findall(r"^(\*{0,2}\w+): (.*(?:\n +.*)*)", body, re.MULTILINE)
        lines = [f"- `{name}`: {' '.join(text.split())}" for name, text in items]
        heading = "Arguments" if title[1] == "Args" else title[1]
        parts.append("\n".join([f"{heading}:", "", *lines]))
    return "\n\n".join(part.replace("``", "`") for part in parts) + "\n"
