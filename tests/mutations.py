"""Change one place in `edenmem` at a time, and count the changes that the tests notice.

    python -m tests.mutations --count 400 --seed 1 [--room engine/formation] [--whole]

The places are drawn at random, from each room as many as its share of the statements. A change is
first shown to the tests of its room, the quick ones before the slow ones; with ``--whole`` the rest
of the suite sees what they missed.
The work happens in a clone of the last commit. Nothing here runs in the gate: 400 changes take
hours.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pytest

#: The tests of each room of `edenmem`, the most specific name first.
ROOMS = {
    "acceptance": ("acceptance", "engine/formation"),
    "browse": ("browse",),
    "cli": ("cli", "golden"),
    "engine/chats": ("engine/chats", "server"),
    "engine/cold": ("engine/cold",),
    "engine/consolidation": ("engine/consolidation", "engine/propagation"),
    "engine/context": ("engine/context",),
    "engine/doctor": ("engine/doctor",),
    "engine/edits": ("engine/editing", "engine/undoing", "engine/test_user_merging.py"),
    "engine/embeddings": ("engine/backfilling", "engine/choosing", "engine/switching"),
    "engine/erasure": ("engine/forgetting", "store/contract/test_forgetting.py"),
    "engine/evaluation.py": ("engine/evaluation",),
    "engine/exchange": ("engine/exchange", "engine/importing"),
    "engine/formation": ("engine/formation", "engine/policies"),
    "engine/history": ("engine/undoing", "engine/editing"),
    "engine/migration": ("engine/migration_runs", "v1world", "migration"),
    "engine/search": ("engine/searching", "isolation"),
    "engine/seals": ("engine/seals",),
    "engine/sessions": ("engine/importing", "engine/service"),
    "engine/statistics.py": ("engine/test_statistics.py",),
    "engine": ("engine",),
    "integrations": ("integrations",),
    "llm": ("llm",),
    "mcp": ("mcp",),
    "memory": ("memory", "store/contract", "engine/undoing"),
    "search": ("search", "engine/searching"),
    "server": ("server",),
    "settings": ("settings", "cli"),
    "store/v1": ("store/v1", "v1world", "migration"),
    "store/mongo": ("store", "platform"),
    "store": ("store",),
    "": ("embed", "rerank", "endpoint", "models", "llm", "cli"),
}
#: Duration in seconds after which a changed program counts as noticed: it hangs.
_LIMIT = 900
_OTHER = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "+",
    ast.And: "or",
    ast.Or: "and",
}


class Mutation(NamedTuple):
    """One change: the text of a node in a file, and what takes its place."""

    path: str
    line: int
    start: int
    end: int
    text: bytes
    room: str


def main() -> int:
    """Run the command; return 1 if the tests fail on unchanged code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--room", default="")
    parser.add_argument("--whole", action="store_true")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="mutations-") as folder:
        clone = Path(folder) / "edenmem"
        subprocess.run(["git", "clone", "--quiet", ".", str(clone)], check=True)
        places = [each for each in find_places(clone) if each.room.startswith(options.room)]
        chosen = random.Random(options.seed).sample(places, min(options.count, len(places)))
        for room in sorted({each.room for each in chosen}):
            if not _passes(clone, ROOMS[room]):
                print(f"the tests of '{room}' fail without a change", file=sys.stderr)
                return 1
        total, killed = Counter[str](), Counter[str]()
        for mutation in chosen:
            noticed = _is_noticed(clone, mutation, whole=options.whole)
            total[mutation.room] += 1
            killed[mutation.room] += noticed
            if not noticed:
                after = mutation.text.decode()
                print(f"missed: {mutation.path}:{mutation.line}: {after}", flush=True)
    for room in sorted(total):
        print(f"{room or 'rest':24}{killed[room]:4} of {total[room]:4}")
    print(f"{'all':24}{killed.total():4} of {total.total():4}")
    return 0


def find_places(root: Path) -> Iterator[Mutation]:
    """Yield every possible change."""
    for path in sorted((root / "edenmem").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        inner = name.removeprefix("edenmem/")
        room = next(room for room in ROOMS if not room or inner.startswith(f"{room}/"))
        source = path.read_bytes()
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for node, text in _changes(ast.parse(source), source, starts):
            start, end = _span(node, starts)
            yield Mutation(name, node.lineno, start, end, text, room)


def _changes(
    tree: ast.Module, source: bytes, starts: list[int]
) -> Iterator[tuple[ast.expr | ast.stmt, bytes]]:
    def text_of(node: ast.expr | ast.stmt) -> bytes:
        start, end = _span(node, starts)
        return source[start:end]

    for node in _code(tree):
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                other = _OTHER[type(operator)].encode()
                yield node, b"(%b) %b (%b)" % (text_of(left), other, text_of(right))
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as operator):
                other = _OTHER[type(operator)].encode()
                yield node, b"(%b) %b (%b)" % (text_of(left), other, text_of(node.right))
            case ast.BoolOp(op=operator, values=values):
                other = b" %b " % _OTHER[type(operator)].encode()
                yield node, other.join(b"(%b)" % text_of(value) for value in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, b"bool(%b)" % text_of(operand)
            case ast.Constant(value=bool() as value):
                yield node, str(not value).encode()
            case ast.Constant(value=int() as value):
                yield node, str(value + 1).encode()
            case ast.If(test=test):
                yield test, b"not (%b)" % text_of(test)
            case ast.Expr(value=ast.Call() | ast.Await()):
                yield node, b"..."


def _code(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes inside functions, without their annotations."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            pending: list[ast.AST] = [*function.body]
            while pending:
                node = pending.pop()
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.JoinedStr):
                    continue  # visited on its own, or text
                yield node
                pending += [
                    child
                    for field, child in _children(node)
                    if field not in {"annotation", "returns"}
                ]


def _children(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield field, child


def _span(node: ast.expr | ast.stmt, starts: list[int]) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[
        node.end_lineno - 1
    ] + node.end_col_offset


def _is_noticed(clone: Path, mutation: Mutation, *, whole: bool) -> bool:
    path = clone / mutation.path
    source = path.read_bytes()
    path.write_bytes(source[: mutation.start] + mutation.text + source[mutation.end :])
    try:
        room = ROOMS[mutation.room]
        passes = _passes(clone, room, "not slow") and _passes(clone, room, "slow")
        return not passes or (whole and not _passes(clone, ("",)))
    finally:
        path.write_bytes(source)


def _passes(clone: Path, tests: tuple[str, ...], marks: str = "") -> bool:
    names = [f"tests/{each}" for each in tests]
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", marks]
    # Processes that tests start must not import what is installed, which has no change.
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    try:
        done = subprocess.run(
            [*command, *names], cwd=clone, env=environment, capture_output=True, timeout=_LIMIT
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


if __name__ == "__main__":
    sys.exit(main())
