"""What shells offer: commands, and names and ids out of the database, as harmless words."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from edenmem.store.sqlite import SqliteStore
from tests.cli.conftest import LENA, MIRA, Cli
from tests.support.builders import make_user

pytestmark = pytest.mark.slow

SHELLS = ("bash", "zsh", "fish")

#: Names that a shell would run, expand or split, if it were handed them.
DANGEROUS = (
    "$(touch owned)",
    "`touch owned`",
    'x"; touch owned; "',
    "x'; touch owned; '",
    "\\$(touch owned)",
    "a b",
    "*",
    "~root",
    "-rf",
    "new\nline",
    "\x1b]0;owned\x07",
)


def offered(cli: Cli, *words: str, shell: str = "bash") -> list[str]:
    """What is offered for the last word."""
    line = shlex.join(["edenmem", *words[:-1]]) + f" {words[-1]}"
    env = {
        "_EDENMEM_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words)),
        "_TYPER_COMPLETE_ARGS": line,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    return cli(env=env).ok().out.split()


@pytest.mark.parametrize(
    ("words", "among"),
    [
        (("fa",), {"fact"}),
        (("fact", "m"), {"merge"}),
        (("scope", "list", "--scope", "s"), {"session", "shard"}),
        (("fact", "list", "--agent", ""), {"mira", "otto"}),
        (("fact", "list", "--agent=m",), {"mira"}),
        (("search", "x", "--recipe", "s"), {"semantic"}),
        (("eval", "queries.jsonl", "--recipe", "rrf+rerank+m"), {"rrf+rerank+mmr"}),
        (("doctor", "--check", "vec"), {"vectors", "vector-damage"}),
        (("show", "l"), {"lena"}),
        (("show", LENA[:5]), {LENA}),
        (("agent", "set", MIRA[:2]), {MIRA}),
        (("search", "x", "--agent", "mira", "--user", "to"), {"tomas"}),
        (("show", "fff"), {"f" * 23 + str(n) for n in (1, 2, 3)}),
        (("delete", "f" * 23 + "1", "ff"), {"f" * 23 + str(n) for n in (1, 2, 3)}),
        (("edit", "eee"), {"e" * 24}),
        (("context", "fi"), {"first-visit"}),
        (("scope", "show", "--agent", "mira", "--shard", ""), {"route"}),
        (("config", "show", "search.mm"), {"search.mmr_lambda"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_words_and_names_are_offered(
    shared_cli: Cli, words: Sequence[str], among: set[str]
) -> None:
    assert set(offered(shared_cli, *words)) == among


def test_profiles_are_offered(shared_cli: Cli) -> None:
    (shared_cli.cwd / "edenmem.toml").write_text("[profiles.production.store]\nread_only = true\n")
    assert offered(shared_cli, "--profile", "p") == ["production"]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_name_that_a_shell_would_run_is_offered_by_its_id(cli: Cli, shell: str) -> None:
    store = SqliteStore(cli.file)
    ids = {f"{number:024x}" for number in range(1, len(DANGEROUS) + 1)}
    for user_id, name in zip(sorted(ids), DANGEROUS, strict=True):
        assert store.host.add_user(make_user(name, id=user_id))
    store.database.close()
    text = "\n".join(offered(cli, "show", "", shell=shell))
    assert ids <= set(re.findall("[0-9a-f]{24}", text))
    for piece in ("touch", "$(", "`", "~", "*;", "\x1b", "-rf"):
        assert piece not in text


def test_nothing_is_told_when_there_is_no_store(empty_cli: Cli) -> None:
    """Completion that prints an error would print it into the line that is being typed."""
    result = empty_cli(
        env={
            "_EDENMEM_COMPLETE": "complete_bash",
            "COMP_WORDS": "edenmem show ",
            "COMP_CWORD": "2",
        }
    )
    assert (result.code, result.out.strip(), result.err) == (0, "", "")


#: Completes the words after the script by the shell's own rules, one candidate a line.
SCRIPTS = {
    "bash": """
        eval "$(edenmem --show-completion bash)"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _edenmem_completion edenmem
        printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        compdef() { : }
        eval "$(edenmem --show-completion zsh)"
        _arguments() { print -r -- "$@"; }
        words=("$@") CURRENT=$#
        _edenmem_completion
    """,
    "fish": """
        edenmem --show-completion fish | source
        complete --do-complete "$(string escape -- $argv | string join ' ')" | string split -f1 \\t
    """,
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_itself_completes(cli: Cli, tmp_path: Path, shell: str) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"there is no {shell} here")
    binary = tmp_path / "edenmem"
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} -m edenmem "$@"\n')
    binary.chmod(0o755)
    script = tmp_path / f"complete.{shell}"
    script.write_text(SCRIPTS[shell])
    quick = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    environment = cli.environment(80, {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"})
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    entries = [entry["id"] for entry in cli.json("log", "--limit", "1")]
    for words, among in (
        (("fact", "list", "--agent", "m"), {"mira"}),
        (("undo", entries[0][:23]), set(entries)),
    ):
        done = subprocess.run(
            [program, *quick, str(script), "edenmem", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert among <= set(re.findall(r"\w+", done.stdout)), (done.stdout, done.stderr)
