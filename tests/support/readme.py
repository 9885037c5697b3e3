"""The parts of the README that are made from the code.

``python -m tests.support.readme`` writes them.

A part stands between ``<!-- made: NAME -->`` and ``<!-- end: NAME -->``. A command that a person
pastes stands alone in a fenced block below ``<!-- command: NAME -->``.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def text() -> str:
    """The whole README."""
    return README.read_text("utf-8")


def made(name: str) -> str:
    """What the README has as the part of that name."""
    found = re.search(rf"<!-- made: {name} -->\n(.*?)<!-- end: {name} -->", text(), re.DOTALL)
    assert found, f"README.md has no part {name!r}"
    return found[1]


def command(name: str) -> str:
    """The one line that a person pastes."""
    found = re.search(rf"<!-- command: {name} -->\n```sh\n(.*?)\n```", text(), re.DOTALL)
    assert found, f"README.md has no command {name!r}"
    assert "\n" not in found[1]
    return found[1]


def blocks(language: str) -> list[str]:
    """All fenced blocks in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text(), re.DOTALL | re.MULTILINE)


def command_table() -> str:
    """Every command with the first line of its help."""
    from edenmem.cli.app.root import COMMANDS, every_command

    rows = ["| command | what it does |", "|---|---|"]
    section = ""
    for words, parsed in every_command():
        entry = COMMANDS[words[0]]
        if entry.section != section:
            section = entry.section
            rows.append(f"| **{section}** | |")
        first = parsed.help.strip().split("\n\n")[0].replace("\n", " ").replace("|", "\\|")
        rows.append(f"| `edenmem {' '.join(words)}` | {first} |")
    return "\n".join(rows) + "\n"


def exit_code_table() -> str:
    """The exit codes, with what each one means."""
    from edenmem.errors import ExitCode

    meaning = {
        ExitCode.OK: "done, or nothing to do, or the reader of a list left (`| head`)",
        ExitCode.SOME_FAILED: "some items or the output failed; stderr or the report says which",
        ExitCode.USAGE: "the request is wrong: an option, a value, a setting, a file",
        ExitCode.NOT_FOUND: "something that was named does not exist",
        ExitCode.CONFLICT: "somebody else changed it first, or it exists already",
        ExitCode.UNAVAILABLE: "the database or a provider cannot be reached or used",
        ExitCode.INTERRUPTED: "interrupted (Ctrl-C); what was begun is given back",
    }
    rows = ["| code | meaning |", "|---|---|"]
    rows += [f"| {code.value} | {meaning[code]} |" for code in ExitCode]
    return "\n".join(rows) + "\n"


def demo_output() -> str:
    """What ``edenmem demo`` prints at 80 columns, its folder named plainly."""
    with tempfile.TemporaryDirectory() as folder:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("EDENMEM_", "OPENAI_"))}
        result = subprocess.run(
            [sys.executable, "-m", "edenmem", "demo", "--folder", f"{folder}/demo"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            cwd=folder,
            env=clean | {"COLUMNS": "80", "HOME": folder, "PYTHONUNBUFFERED": "1"},
        )
        printed = result.stdout.replace(f"{folder}/demo", "/tmp/edenmem-demo-1x2y3z")
        printed = printed.replace(f"{ROOT}/", "")
    return "```\n" + printed.rstrip() + "\n```\n"


MAKERS: dict[str, Callable[[], str]] = {
    "commands": command_table,
    "exit codes": exit_code_table,
    "demo": demo_output,
}


def _between(part: str, found: re.Match[str]) -> str:
    return found[1] + part + found[2]


def write() -> None:
    """Make every part anew."""
    whole = text()
    for name, make in MAKERS.items():
        whole, count = re.subn(
            rf"(<!-- made: {name} -->\n).*?(<!-- end: {name} -->)",
            partial(_between, make()),
            whole,
            flags=re.DOTALL,
        )
        assert count == 1, name
    README.write_text(whole, "utf-8")


if __name__ == "__main__":
    write()
