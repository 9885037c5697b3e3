"""Questions on a terminal: stdin and stderr must both be one."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from edenmem.errors import UsageError
from edenmem.text import one_line

#: Maximum number of choices without a search filter.
_FEW = 8


def person_is_there() -> bool:
    """Return whether questions are possible; stdout may be a file."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class Missing(UsageError):
    """An argument or option is missing. Without a hint, the command refers to its help."""

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        super().__init__(f"{what} is missing", hint=hint)


def _title(what: str) -> str:
    return f"{what[:1].upper()}{what[1:]}:"


def _ask(question: Any) -> Any:
    answer = question.unsafe_ask()  # raises KeyboardInterrupt on Ctrl-C
    if answer is None:
        raise KeyboardInterrupt
    return answer


def _terminal() -> Any:
    from prompt_toolkit.output import create_output

    return create_output(stdout=sys.stderr)


def ask_text(
    what: str, option: str, *, default: str = "", hint: str | None = None, is_secret: bool = False
) -> str:
    """Ask for a line of text; a secret is not shown.

    Raises:
        UsageError: There is no terminal, or no answer; names the option.
    """
    if not person_is_there():
        raise Missing(option, hint=hint)
    import questionary

    ask = questionary.password if is_secret else questionary.text
    question = ask(_title(what), default=default, output=_terminal())
    answer = str(_ask(question)).strip()
    if not answer:
        raise Missing(option, hint=hint)
    return answer


def ask_choice(what: str, option: str, choices: Sequence[tuple[str, str]]) -> str:
    """Ask for one of ``choices``, as values and labels.

    Raises:
        UsageError: There is no terminal; names the option and the choices.
    """
    if not person_is_there():
        labels = ", ".join(one_line(label, 40) for _, label in choices[:8])
        raise Missing(option, hint=f"one of: {labels}")
    import questionary

    return str(
        _ask(
            questionary.select(
                _title(what),
                choices=[
                    questionary.Choice(one_line(label, 60), value) for value, label in choices
                ],
                output=_terminal(),
                use_search_filter=len(choices) > _FEW,  # type to filter
                use_jk_keys=len(choices) <= _FEW,
            )
        )
    )


def ask_key(question: str, answers: Mapping[str, str], *, default: str) -> str:
    """Ask for one key; Enter is the default.

    ``answers`` maps each key to the text to show.
    """
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
    from prompt_toolkit.keys import Keys

    bindings = KeyBindings()

    def choose(event: KeyPressEvent) -> None:
        typed = event.key_sequence[0].key
        key = default if typed == Keys.ControlM else str(typed).lower()
        event.current_buffer.insert_text(answers[key])
        event.app.exit(result=key)

    for key in [*answers, *map(str.upper, answers), Keys.ControlM]:
        bindings.add(key)(choose)
    bindings.add(Keys.Any)(lambda event: None)
    session: PromptSession[str] = PromptSession(key_bindings=bindings, output=_terminal())
    return session.prompt(f"? {question} ")


def confirm(question: str, *, yes: bool, can_look: bool = True) -> bool:
    """Ask for confirmation, unless ``yes``.

    ``can_look``: the command has ``--dry-run``.

    Raises:
        UsageError: There is no terminal.
    """
    if yes:
        return True
    if not person_is_there():
        look = ", or preview with --dry-run" if can_look else ""
        raise UsageError("confirmation needed", hint=f"add --yes{look}")
    import questionary

    return bool(_ask(questionary.confirm(question, default=False, output=_terminal())))
