"""Generate parts of the README and the guides from the code.

Run ``python -m tests.support.readme``.

A part is between ``<!-- made: NAME -->`` and ``<!-- end: NAME -->``. A command for users to paste
is in a fenced block below ``<!-- command: NAME -->``.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from tests.support import library_reference

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
GUIDES = ROOT / "edenmem" / "docs"
PICTURE = GUIDES / "images" / "demo.svg"
BROWSER_PICTURE = GUIDES / "images" / "browse.svg"


def pages() -> list[Path]:
    """Return the README and all guides."""
    return [README, *sorted(GUIDES.glob("*.md"))]


def made(name: str) -> str:
    """Return the part with this name from its page."""
    for page in pages():
        part = rf"<!-- made: {name} -->\n(.*?)<!-- end: {name} -->"
        if found := re.search(part, page.read_text("utf-8"), re.DOTALL):
            return found[1]
    raise AssertionError(f"no page has a part {name!r}")


def command(name: str) -> str:
    """Return a command of the README."""
    block = rf"<!-- command: {name} -->\n```sh\n(.*?)\n```"
    found = re.search(block, README.read_text("utf-8"), re.DOTALL)
    assert found, f"README.md has no command {name!r}"
    assert "\n" not in found[1]
    return found[1]


def blocks(language: str, page: Path) -> list[str]:
    """Return the fenced blocks of a page in a language, in order."""
    fenced = rf"^```{language}\n(.*?)^```$"
    return re.findall(fenced, page.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def command_table() -> str:
    """Return a table of commands with the first line of their help."""
    from edenmem.cli.app.root import COMMANDS
    from tests.support.commands import every_command

    rows = ["| command | what it does |", "|---|---|"]
    section = ""
    for words, parsed in every_command():
        entry = COMMANDS[words[0]]
        if entry.section != section:
            section = entry.section
            rows.append(f"| **{section}** | |")
        first = parsed.help.strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| `edenmem {' '.join(words)}` | {first} |")
    return "\n".join([*rows, "", f"These are {len(list(every_command()))} commands."]) + "\n"


def exit_code_table() -> str:
    """Return a table of exit codes with their meaning."""
    from edenmem.errors import ExitCode

    meaning = {
        ExitCode.OK: "done, nothing to do, or the reader closed the pipe (`| head`)",
        ExitCode.SOME_FAILED: "some items failed; see stderr or the report",
        ExitCode.USAGE: "invalid request: option, value, setting, or content of a file; standard "
        "output is closed",
        ExitCode.NOT_FOUND: "an object, file or folder that the command names does not exist",
        ExitCode.CONFLICT: "changed by another writer, or already exists",
        ExitCode.UNAVAILABLE: "the store does not exist, a database or provider cannot be used, or "
        "a disk is full",
        ExitCode.INTERRUPTED: "interrupted (Ctrl-C); claims are released",
    }
    rows = ["| code | meaning |", "|---|---|"]
    rows += [f"| {code.value} | {meaning[code]} |" for code in ExitCode]
    return "\n".join(rows) + "\n"


def descriptions() -> Mapping[str, str]:
    """Return the Markdown description of each dotted key, in the order of the schema.

    A description is the string below a field of the schema.
    """
    from edenmem.settings import schema
    from edenmem.settings.keys import defaults

    classes: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(schema)).body:
        if isinstance(node, ast.ClassDef):
            found = classes[node.name] = {}
            for field, text in zip(node.body, node.body[1:], strict=False):
                match field, text:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(description))),
                    ):
                        found[name] = " ".join(inspect.cleandoc(description).split())

    def describe(key: str) -> str:
        *tables, name = key.split(".")
        section: object = schema.Settings()
        for table in tables:
            section = getattr(section, table)
        return classes[type(section).__name__].get(name, "")

    return {key: describe(key) for key in defaults()}


def settings_table() -> str:
    """Return tables of settings with description, accepted values and default."""
    from edenmem.settings.keys import accepted_values, defaults
    from edenmem.settings.schema import DEFAULTS

    lines: list[str] = []
    section = ""
    for key, description in descriptions().items():
        table, _, name = key.rpartition(".")
        if table != section:
            section = table
            lines += ["", f"### {table}", "", "| key | meaning | accepts | default |"]
            lines += ["|---|---|---|---|"]
        default = defaults()[key]
        shown = "" if default in ("", None, {}) else f"`{json.dumps(default)}`"
        numbers = DEFAULTS.get(key)
        if numbers and numbers.platform != numbers.own:
            shown += f"; `{numbers.platform}` with the platform"
        cells = (f"`{name}`", description, accepted_values(key), shown)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n\n"


MAKERS: dict[str, Callable[[], str]] = {
    "commands": command_table,
    "exit codes": exit_code_table,
    "settings": settings_table,
    "library": library_reference.reference,
}


def demo_output(*, color: bool = False) -> str:
    """Return the output of ``edenmem demo`` at 80 columns, with simple IDs and folder."""
    with tempfile.TemporaryDirectory() as folder:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("EDENMEM_", "OPENAI_"))}
        command = [sys.executable, "-m", "edenmem", "demo"]
        environment = clean | {"COLUMNS": "80", "HOME": folder, "TMPDIR": folder}
        if color:
            environment["FORCE_COLOR"] = "1"
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, cwd=folder, env=environment
        )
        printed = re.sub(rf"{folder}/edenmem-demo-\w+", "/tmp/edenmem-demo-1x2y3z", done.stdout)
    return re.sub(r"\b[0-9a-f]{24}\b", _plain_id(), printed)


def _plain_id() -> Callable[[re.Match[str]], str]:
    known: dict[str, str] = {}
    return lambda found: known.setdefault(found[0], f"65f3a1b2c4d5e6f7a8b9c0{len(known):02d}")


def draw_demo() -> str:
    """Draw the demo, as SVG."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=80, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123
    console.print(Text("$ edenmem demo", style="bold"))
    console.print(Text.from_ansi(demo_output(color=True)), end="")
    return _without_fonts(console.export_svg(title="edenmem", unique_id="demo"))


def _without_fonts(picture: str) -> str:
    """Remove web fonts from a picture."""
    return re.sub(r"@font-face \{.*?\}\s*", "", picture, flags=re.DOTALL)


def draw_browser() -> str:
    """Draw the browser, as SVG."""
    import asyncio

    from tests.support.browsing import draw

    with tempfile.TemporaryDirectory() as folder:
        return _without_fonts(asyncio.run(draw(Path(folder))))


def picture_text(picture: str) -> str:
    """Return the text of a picture."""
    import html

    found = re.findall(r"<text [^>]*>([^<]*)</text>", picture)
    return " ".join(html.unescape(" ".join(found)).split())


def _between(part: str, found: re.Match[str]) -> str:
    return found[1] + part + found[2]


def write() -> None:
    """Write all generated parts and pictures."""
    written = set()
    for page in pages():
        whole = page.read_text("utf-8")
        for name, make in MAKERS.items():
            whole, count = re.subn(
                rf"(<!-- made: {name} -->\n).*?(<!-- end: {name} -->)",
                partial(_between, make()),
                whole,
                flags=re.DOTALL,
            )
            written |= {name} if count else set()
        page.write_text(whole, "utf-8")
    assert written == set(MAKERS), set(MAKERS) - written
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw_demo(), "utf-8")
    BROWSER_PICTURE.write_text(draw_browser(), "utf-8")


if __name__ == "__main__":
    write()
