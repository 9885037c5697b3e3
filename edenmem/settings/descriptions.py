"""Descriptions of settings: the string below each field in `edenmem.settings.schema`.

Few commands need descriptions, so they are parsed from the source on demand, as Pydantic does for
``use_attribute_docstrings``.
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
    """Return the Markdown description of each dotted key, in the order of the schema."""
    classes = {
        node.name: _attribute_docstrings(node)
        for node in ast.parse(inspect.getsource(schema)).body
        if isinstance(node, ast.ClassDef)
    }
    return dict(_describe(schema.Settings(), classes))


def _attribute_docstrings(node: ast.ClassDef) -> dict[str, str]:
    """Return the string below each annotated field, by field name."""
    found = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(description))),
            ):
                found[name] = " ".join(inspect.cleandoc(description).split())
    return found


def _describe(
    section: msgspec.Struct, classes: Mapping[str, Mapping[str, str]], prefix: str = ""
) -> Iterator[tuple[str, str]]:
    texts = classes[type(section).__name__]
    for name in section.__struct_fields__:
        if name in schema.NOT_SETTINGS:
            continue
        value = getattr(section, name)
        if isinstance(value, msgspec.Struct):
            yield from _describe(value, classes, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", texts.get(name, "")
