"""From the words of a command line to values, without loading a validation library.

Typer converts with pydantic, whose import takes as long as Typer's own. Commands take texts,
whole numbers, choices and lists of these, which are converted here; the errors name the option
and what it takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from enum import Enum
from functools import partial, wraps
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from typer.core import TyperArgument, TyperOption
from typer.models import ParameterInfo

from edenmem.cli.app.completion import declare
from edenmem.errors import UsageError


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Options that several commands take together, declared once.

    A parameter of a command that has such a type stands for one option for each of its fields.
    """


def spread_groups(callback: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command with an option in place of each field of its option groups."""
    signature = inspect.signature(callback, eval_str=True)
    groups: dict[str, type[OptionGroup]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        kind = parameter.annotation
        if isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[parameter.name] = kind
            parameters += _options_of(kind)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    if not groups:
        return callback

    @wraps(callback)
    def call(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{field: given.pop(field) for field in kind.__struct_fields__})
        return callback(**given)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def add_completion(callback: Callable[..., Any]) -> None:
    """Have the parameters of a command complete their values in a shell."""
    signature = inspect.signature(callback, eval_str=True)
    # Typer would evaluate annotations that are texts once more, to other declarations.
    callback.__annotations__ = {
        each.name: each.annotation for each in signature.parameters.values()
    }
    callback.__signature__ = signature  # type: ignore[attr-defined]
    for parameter in signature.parameters.values():
        for declaration in getattr(parameter.annotation, "__metadata__", ()):
            if isinstance(declaration, ParameterInfo):
                declare(declaration, parameter.name)


def _options_of(kind: type[OptionGroup]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in msgspec.structs.fields(kind)
    ]


def lighten(parameters: Iterable[Any]) -> list[Any]:
    """Have the parameters, as Typer made them, convert their values in our way."""
    made = list(parameters)
    for parameter in made:
        if isinstance(parameter, TyperOption | TyperArgument):
            parameter.process_value = partial(_process, parameter)  # type: ignore[method-assign]
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
    known = [str(member.value) for member in kind]
    raise _wrong(parameter, value, f"one of {', '.join(known)}", hint=suggest(value.lower(), known))


def suggest(word: str, known: Iterable[str]) -> str | None:
    """Return the hint that names the nearest of the known words, or None if none is near."""
    near = " or ".join(repr(each) for each in get_close_matches(word, list(known)))
    return f"did you mean {near}?" if near else None


def _check_range(parameter: Any, number: int) -> None:
    low, high = parameter.min, parameter.max
    if (low is None or number >= low) and (high is None or number <= high):
        return
    bounds = f"at least {low}" if high is None else f"from {low} to {high}"
    raise _wrong(parameter, number, f"a whole number, {bounds}")


def _wrong(parameter: Any, value: object, wanted: str, hint: str | None = None) -> UsageError:
    return UsageError(f"{_name(parameter)} takes {wanted}, not {str(value)!r}", hint=hint)


def _name(parameter: Any) -> str:
    """What a person calls the parameter: ``--limit``, or the argument's name in the help."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name.upper()).strip("[]…")
