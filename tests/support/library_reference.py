"""Generate the reference of the library from its docstrings, for `tests.support.readme`."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from functools import cache
from pathlib import Path

import msgspec

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
        *("MemoryHit", "EditReport", "FactOrigin", "ScopeStatus"),
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
        parts.append(f"## {subject}\n")
        things = {name: getattr(edenmem, name) for name in names}
        is_struct = {name: hasattr(things[name], "__struct_fields__") for name in names}
        is_struct |= dict.fromkeys({"Settings"} & things.keys(), False)  # has a guide of its own
        if others := [name for name in names if not is_struct[name]]:
            rows = "".join(f"| `{name}` | {_summary(things[name])} |\n" for name in others)
            parts.append(f"| name | what it is |\n|---|---|\n{rows}")
        parts += [_struct(name, things[name]) for name in names if is_struct[name]]
    parts.append("## Parts of results\n\nThese types have no public name.\n")
    parts += [_struct(name, each) for name, each in sorted(_inner_structs(listed).items())]
    return "\n" + "\n".join(parts) + "\n"


def _inner_structs(listed: set[str]) -> dict[str, type[msgspec.Struct]]:
    """Return the structs that methods return and that fields hold, apart from the public ones."""
    found: dict[str, type[msgspec.Struct]] = {}
    pending = [getattr(edenmem, name) for name in listed - {"Settings"}]
    for name in _WHOLE:
        kind = getattr(edenmem, name)
        for method in _definition(kind).body:
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.returns:
                pending += _resolve(kind, method.returns)
    while pending:
        kind = pending.pop()
        if not hasattr(kind, "__struct_fields__") or kind.__name__ in found:
            continue
        if kind.__name__ not in listed and not kind.__name__.startswith("_"):
            found[kind.__name__] = kind
        for field in inspect.get_annotations(kind).values():
            pending += _resolve(kind, ast.parse(field, mode="eval"))
    return found


def _resolve(kind: type, annotation: ast.AST) -> list[type]:
    """Return the classes named in an annotation of ``kind``."""
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    module = importlib.import_module(kind.__module__)
    found = [getattr(module, name) for name in names if hasattr(module, name)]
    sources = _imports(module.__file__ or "")
    found += [getattr(importlib.import_module(sources[name]), name) for name in names & {*sources}]
    return [each for each in found if isinstance(each, type)]


@cache
def _imports(file: str) -> dict[str, str]:
    """Return the module of each name that a file imports from edenmem, also for types only."""
    return {
        name.name: node.module
        for node in ast.walk(ast.parse(Path(file).read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("edenmem")
        for name in node.names
    }


def _struct(name: str, kind: type[msgspec.Struct]) -> str:
    """Return the meaning of a struct with its fields, their types and defaults."""
    types = {
        field: annotation
        for base in reversed(kind.__mro__)
        for field, annotation in inspect.get_annotations(base).items()
    }
    rows = "".join(
        f"| `{field.name}` | `{_type_name(types[field.name])}` | {_default(field)} |\n"
        for field in msgspec.structs.fields(kind)
    )
    about = _markdown(inspect.getdoc(kind) or "")
    return f"### {name}\n\n{about}\n| field | type | default |\n|---|---|---|\n{rows}"


def _type_name(annotation: object) -> str:
    return (annotation if isinstance(annotation, str) else str(annotation)).replace("|", "\\|")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    return "" if field.default is msgspec.NODEFAULT else f"`{field.default!r}`"


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
    returned = ast.unparse(method.returns) if method.returns else "None"
    return f"{prefix}{method.name}({given}) -> {returned}"


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
