"""Conversion of command-line values without a validation library, and shell completion.

Typer converts with pydantic, whose import takes as long as Typer's own. Strings, numbers,
choices and lists are converted here, with errors that name the option and its values.

Shells evaluate completions, and zsh even runs them as code. Therefore only names without special
characters are offered, without descriptions; other things are offered by ID. Completion never
writes, is silent on errors, and has a short timeout.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial, wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import typer
from typer.core import TyperArgument, TyperOption

from edenmem.cli.app.invocation import Invocation
from edenmem.cli.terminal.prompts import Missing
from edenmem.errors import EdenmemError, UsageError
from edenmem.invalid import nearest_word

if TYPE_CHECKING:
    from edenmem.engine.scopes.references import ReferenceKind


class OptionGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of options for several commands.

    A parameter with such a type becomes one option for each field.
    """


def fill_in(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command its invocation, and option groups in place of their options."""
    signature = inspect.signature(callback, eval_str=True)
    groups: dict[str, type[OptionGroup]] = {}
    parameters = []
    for parameter in signature.parameters.values():
        kind = parameter.annotation
        if kind is Invocation:
            parameters.append(_option("ctx", typer.Context))
        elif isinstance(kind, type) and issubclass(kind, OptionGroup):
            groups[parameter.name] = kind
            hints = get_type_hints(kind, include_extras=True)
            parameters += [
                _option(field.name, hints[field.name], field.default)
                for field in msgspec.structs.fields(kind)
            ]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(callback)
    def call(ctx: typer.Context, **given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{field: given.pop(field) for field in kind.__struct_fields__})
        return callback(ctx.obj, **given)

    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _option(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def lighten(parameters: Iterable[Any]) -> list[Any]:
    """Replace the conversion and completion of values in Typer's parameters by ours."""
    made = list(parameters)
    for parameter in made:
        if isinstance(parameter, TyperOption | TyperArgument):
            parameter.process_value = partial(_process, parameter)  # type: ignore[method-assign]
            metavar = str(parameter.metavar or "").strip("[]…")
            if completer := BY_NAME.get(str(parameter.name)) or COMPLETERS.get(metavar):
                # Declared, each would cost an evaluation of annotations in every command.
                parameter._custom_shell_complete = partial(_complete_word, completer)  # noqa: SLF001
        if isinstance(parameter, TyperArgument):
            record = parameter.get_help_record
            parameter.get_help_record = partial(_argument_help, record)  # type: ignore[method-assign]
            parameter.get_usage_pieces = partial(_usage, parameter)  # type: ignore[method-assign]
    return made


def _argument_help(get_record: Callable[..., Any], ctx: Any) -> tuple[str, str] | None:
    """Return the metavar and the help of an argument, without its Python type."""
    record = get_record(ctx)
    return record and (record[0].split(" <")[0], record[1].removesuffix("  [required]"))


def _usage(parameter: Any, ctx: Any) -> list[str]:
    """Return the metavar of an argument, in brackets if it is optional."""
    name = str(parameter.metavar)
    return [name if parameter.required or name.startswith("[") else f"[{name}]"]


#: Argument → how to find its values.
_LISTS = {
    "RUN": "list runs: edenmem migrate status",
    "PERSON": "list users: edenmem user list",
}


def _process(parameter: Any, ctx: Any, value: Any) -> Any:
    """Convert a value, check that required ones are given, and call the callback."""
    kind = parameter.type_descriptor.annotation
    if get_origin(kind) is list:
        value = tuple(_one(parameter, get_args(kind)[0], item) for item in value or ())
    elif value is not None:
        value = _one(parameter, kind, value)
    if parameter.required and parameter.value_is_missing(value):
        name = _name(parameter)
        raise Missing(name, hint=_LISTS.get(name) or f"see '{ctx.command_path} --help'")
    return value if parameter.callback is None else parameter.callback(ctx, parameter, value)


#: Type of a number → its name in messages.
_NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


def _one(parameter: Any, kind: Any, value: Any) -> Any:
    if get_origin(kind) is Literal:
        converted = _choice(parameter, get_args(kind), value)
    elif isinstance(value, kind):  # a default or a flag
        converted = value
    elif issubclass(kind, StrEnum):
        converted = _choice(parameter, kind, value)
    elif kind in _NUMBERS:
        try:
            converted = kind(value)
        except ValueError:
            raise _wrong(parameter, value, _NUMBERS[kind]) from None
    else:
        raise TypeError(f"{_name(parameter)}: no conversion to {kind!r}")
    if kind in _NUMBERS:
        low, high = parameter.min, parameter.max
        if (low is not None and converted < low) or (high is not None and not converted <= high):
            bounds = f"at least {low}" if high is None else f"from {low} to {high}"
            raise _wrong(parameter, converted, f"{_NUMBERS[kind]}, {bounds}")
    return converted


def _choice(parameter: Any, choices: Iterable[str], value: str) -> str:
    """Return the choice that is meant; the case does not matter."""
    known = {str(choice): choice for choice in choices}
    if found := known.get(value.lower()):
        return found
    raise _wrong(parameter, value, f"one of {', '.join(known)}", hint=suggest(value.lower(), known))


def suggest(word: str, known: Iterable[str]) -> str | None:
    """Return the hint that names the nearest of the known words, or None if none is near."""
    near = nearest_word(word, known)
    return f"did you mean {near!r}?" if near else None


def _wrong(parameter: Any, value: object, wanted: str, hint: str | None = None) -> UsageError:
    return UsageError(f"{_name(parameter)} takes {wanted}, not {str(value)!r}", hint=hint)


def _name(parameter: Any) -> str:
    """Return the name of a parameter: ``--limit``, or the metavar of an argument."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name.upper()).strip("[]…")


# -- completion ------------------------------------------------------------------------------------

#: Maximum number of candidates, about a screen.
LIMIT = 50

_HARMLESS = re.compile(r"[\w.@+][\w.@+-]*\Z")

Completer = Callable[[Invocation, Any, str], Iterable[str]]


def _complete_word(completer: Completer, ctx: Any, parameter: Any, incomplete: str) -> list[str]:
    """Return the candidates for an option or argument; none on errors."""
    run = ctx.obj
    if not isinstance(run, Invocation):
        return []
    run.quiet = run.read_only = True
    run.overrides.setdefault("store.connect_timeout_seconds", "1")
    try:
        values = dict.fromkeys(completer(run, ctx, incomplete))
    except EdenmemError:
        return []
    return [value for value in values if value.startswith(incomplete) and _HARMLESS.match(value)]


def _complete_ids(kind: ReferenceKind) -> Completer:
    def completer(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
        for found in run.service.host.find_by_prefix(kind, incomplete, limit=LIMIT):
            if incomplete and found.id.startswith(incomplete.lower()):
                yield found.id
            else:
                yield found.label if _HARMLESS.match(found.label) else found.id

    return completer


def _complete_refs(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    """Yield agents, users, sessions and memories, by name or ID."""
    kinds: tuple[ReferenceKind, ...] = ("agent", "user", "session", "fact", "reflection")
    for kind in kinds:
        yield from islice(_complete_ids(kind)(run, ctx, incomplete), LIMIT)


def _shards(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    """Yield the shards of the given agent, or of all agents."""
    agent = ctx.params.get("agent")
    agents = [run.resolver.agent(agent)] if agent else run.service.host.agents()
    for each in islice(agents, LIMIT):
        for policy in run.service.host.shards(each.id):
            yield policy.shard or ""


def _groups(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    agent = ctx.params.get("agent")
    agent_id = run.resolver.agent(agent).id if agent else None
    for session in run.service.host.sessions(agent_id=agent_id, limit=20 * LIMIT):
        yield session.group_id or ""


def _recipes(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    """Yield recipes that extend the typed one by a stage."""
    from edenmem.engine.search.request import complete_recipe

    return complete_recipe(incomplete)


def _checks(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    from edenmem.engine.doctor.report import CATALOG

    return CATALOG


def _settings(run: Invocation, ctx: Any, incomplete: str) -> Iterable[str]:
    from edenmem.settings.keys import defaults

    return defaults()


#: Metavar of a parameter → completer.
COMPLETERS: dict[str, Completer] = {
    "AGENT": _complete_ids("agent"),
    "USER": _complete_ids("user"),
    "PERSON": _complete_ids("user"),
    "ACCOUNT": _complete_ids("user"),
    "FROM": _complete_ids("user"),
    "TO": _complete_ids("user"),
    "SESSION": _complete_ids("session"),
    "FACT": _complete_ids("fact"),
    "REF": _complete_refs,
    "FORMATION": _complete_ids("formation"),
    "ENTRY": lambda run, *_: (e.id for e in run.service.history.entries(limit=20 * LIMIT)),
    "GROUP": _groups,
    "KEY": _settings,
}
#: Name of a parameter → completer.
BY_NAME: dict[str, Completer] = {
    "check": _checks,
    "profile": lambda run, *_: run.loaded.profiles,
    "recipe": _recipes,
    "recipes": _recipes,
    "shard": _shards,
}
