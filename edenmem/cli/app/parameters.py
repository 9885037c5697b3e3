"""From the words of a command line to values, without loading a validation library.

Typer converts with pydantic, whose import takes as long as Typer's own. Commands take texts,
whole numbers, choices and lists of these, which are converted here; the errors name the option
and what it takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import Any, get_args, get_origin

from typer.core import TyperArgument, TyperOption

from edenmem.cli.app.completion import complete, completer_of
from edenmem.errors import UsageError


def lighten(parameters: Iterable[Any]) -> list[Any]:
    """Have the parameters, as Typer made them, convert their values in our way."""
    made = list(parameters)
    for parameter in made:
        if isinstance(parameter, TyperOption | TyperArgument):
            parameter.process_value = partial(_process, parameter)  # type: ignore[method-assign]
            completer = completer_of(parameter)
            if completer is not None:
                parameter._custom_shell_complete = complete(completer)
    return made


def _process(parameter: Any, ctx: Any, value: Any) -> Any:
    """What ``process_value`` does: convert, demand what is required, call the callback."""
    value = _convert(parameter, value)
    if parameter.required and parameter.value_is_missing(value):
        raise UsageError(f"{_name(parameter)} is missing", hint=f"see '{ctx.command_path} --help'")
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


def _convert(parameter: Any, value: Any) -> Any:
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is list:
        return tuple(_one(parameter, get_args(kind)[0], item) for item in value or ())
    return None if value is None else _one(parameter, kind, value)


def _one(parameter: Any, kind: Any, value: Any) -> Any:
    if isinstance(value, kind):  # a default, or a flag
        converted = value
    elif issubclass(kind, Enum):
        converted = _choice(parameter, kind, value)
    elif kind is int:
        try:
            converted = int(value)
        except ValueError:
            raise _wrong(parameter, value, "a whole number") from None
    else:
        raise TypeError(f"{_name(parameter)}: no conversion to {kind!r}")
    if kind is int:
        _check_range(parameter, converted)
    return converted


def _choice(parameter: Any, kind: type[Enum], value: str) -> Enum:
    for member in kind:
        if member.value == value.lower():
            return member
    known = ", ".join(str(member.value) for member in kind)
    raise _wrong(parameter, value, f"one of {known}")


def _check_range(parameter: Any, number: int) -> None:
    low, high = parameter.min, parameter.max
    if (low is None or number >= low) and (high is None or number <= high):
        return
    bounds = f"at least {low}" if high is None else f"from {low} to {high}"
    raise _wrong(parameter, number, f"a whole number, {bounds}")


def _wrong(parameter: Any, value: object, wanted: str) -> UsageError:
    return UsageError(f"{_name(parameter)} takes {wanted}, not {str(value)!r}")


def _name(parameter: Any) -> str:
    """What a person calls the parameter: ``--limit``, or the argument's name in the help."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name.upper()).strip("[]…")
