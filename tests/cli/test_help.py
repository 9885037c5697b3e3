"""What ``--help`` says: an example for each command, and each example is one that is understood."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.app.root import app, every_command
from edenmem.settings.keys import defaults

COMMANDS = dict(every_command())
NAMES = {words[0] for words in COMMANDS}


def examples(command: Any) -> list[str]:
    """The command lines in a command's help."""
    text = str(command.help or "").replace("\\\n", " ")
    lines = re.findall(r"^ *(?:\w+=\S+ )?edenmem (.+?)(?: {2,}\(.*)?$", text, re.MULTILINE)
    return [line for line in lines if line.split()[0] in NAMES]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_each_command_has_examples_that_are_understood(words: tuple[str, ...]) -> None:
    found = examples(COMMANDS[words])
    assert any(example.split()[: len(words)] == [*words] for example in found), found
    for example in found:
        line = re.split(r" [|>&#] ?| \d?> ", example)[0]
        _understood(shlex.split(line))


def _understood(arguments: list[str]) -> None:
    """Parse without running: an unknown command, option or choice is an error."""
    context = get_command(app).make_context("edenmem", arguments, obj=Invocation())
    while True:
        group: Any = context.command
        if not hasattr(group, "resolve_command"):
            return
        name, command, rest = group.resolve_command(context, context._protected_args + context.args)
        context = command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_default_that_a_setting_has_is_shown_as_it_is(words: tuple[str, ...]) -> None:
    for parameter in COMMANDS[words].params:
        shown = re.search(r"\[default: (\w+\.\w+), (\S+)\]", getattr(parameter, "help", "") or "")
        assert not shown or str(defaults()[shown[1]]) == shown[2]


def test_defaults_from_settings_are_shown() -> None:
    texts = [str(vars(one).get("help")) for one in COMMANDS["serve",].params]
    assert any("[default: server.port, 8377]" in text for text in texts)
