"""What each setting means: the string below its field in `edenmem.settings.schema`.

The schema is imported by every command, and its descriptions are needed by few; they are read from
its source only when they are wanted, as Pydantic does for ``use_attribute_docstrings``.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterator, Mapping

import msgspec

from edenmem.settings import schema


@functools.cache
def descriptions() -> Mapping[str, str]:
    """Every dotted key with its description, in Markdown, in the order of the schema."""
    classes = {
        node.name: _attribute_docstrings(node)
        for node in ast.parse(inspect.getsource(schema)).body
        if isinstance(node, ast.ClassDef)
    }
    return dict(_describe(schema.Settings(), classes))


def _attribute_docstrings(node: ast.ClassDef) -> dict[str, str]:
    """The name of each annotated field with the string that follows it."""
    found = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = " ".join(inspect.cleandoc(words).split())
    return found


def _describe(
    section: msgspec.Struct, classes: Mapping[str, Mapping[str, str]], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    words = classes[type(section).__name__]
    for name in section.__struct_fields__:
        value = getattr(section, name)
        if isinstance(value, msgspec.Struct):
            yield from _describe(value, classes, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", words.get(name, "")
