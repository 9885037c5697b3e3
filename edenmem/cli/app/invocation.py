"""One run of the command line: global options, and lazily created services."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import typer

from edenmem.cli.terminal.output import ColorWhen, Output, OutputFormat, format_of
from edenmem.cli.terminal.prompts import confirm
from edenmem.errors import (
    ConfigError,
    EdenmemWarning,
    ExitCode,
    StoreError,
    UsageError,
    WriteRefused,
)
from edenmem.models.changes import Actor
from edenmem.models.ids import new_id
from edenmem.settings.paths import has_password, redact_uri, sqlite_path

if TYPE_CHECKING:
    from edenmem.engine.edits.reviewer import Reviewer
    from edenmem.engine.scopes.references import Resolver
    from edenmem.engine.service import MemoryService
    from edenmem.settings.load import LoadedSettings
    from edenmem.settings.schema import Settings

T = TypeVar("T")


#: A command of edenmem that a hint or note suggests.
_SUGGESTED = re.compile(r"'edenmem (?!help\b)([^']+)(?<!--help)'")


LogFormat = Literal["text", "json"]


class Invocation:
    """State of one run, passed to each command."""

    def __init__(self) -> None:
        self.uri: str | None = None
        self.config: str | None = None
        self.profile: str | None = None
        self.overrides: dict[str, str] = {}
        self._options: dict[str, str] = {}
        self.read_only = False
        self.format: OutputFormat | None = None
        self.output: str | None = None
        self.overwrite = False
        self.quiet = False
        self.color: ColorWhen | None = None
        self.traceback = False
        self.verbosity = 0
        self._has_log = False
        self.log_format: LogFormat = "text"
        self.command = "edenmem"
        self.path = "edenmem"  # the command without its arguments
        self.root: Any = None  # the parser's context of the whole command line
        self.is_writing = False

    def take(self, name: str, value: Any) -> None:
        """Store the value of a global option."""
        if name == "overrides":
            for text in value:
                key, equals, setting = text.partition("=")
                if not equals or not key:
                    raise UsageError(
                        f"invalid --set: {text!r}", hint="KEY=VALUE, such as search.top_k=5"
                    )
                self._override(key.strip(), setting)
        elif name == "no_color":
            self.color = "never"
        elif name == "json":
            self.format = OutputFormat.JSON
        else:
            setattr(self, name, value)

    def _override(self, key: str, setting: str) -> None:
        """Override a setting by ``--set``.

        Raises:
            UsageError: The setting is a secret, which the process list would expose.
        """
        from edenmem.settings.keys import environment_names
        from edenmem.settings.schema import SECRETS

        if key in SECRETS:
            name = next(name for name, named in environment_names().items() if named == key)
            raise UsageError(
                f"--set {key} would expose a secret in the process list",
                hint=f"set {name}, or use a private configuration file",
            )
        self.overrides[key] = setting

    def refuse_output_file(self, reason: str) -> None:
        """Refuse ``-o`` for a command that has no result to keep.

        Raises:
            UsageError: ``-o`` was given.
        """
        if self.output is not None:
            raise UsageError(f"-o does not apply: {reason}")

    def move_to(self, uri: str) -> None:
        """Switch to another store."""
        self.uri = uri
        self.reload()

    def override(self, settings: Mapping[str, tuple[str, object]]) -> None:
        """Override settings for the rest of the run, each by an option; None is not given."""
        given = {key: each for key, each in settings.items() if each[1] is not None}
        if given:
            self.overrides |= {key: str(value) for key, (_, value) in given.items()}
            self._options |= {key: option for key, (option, _) in given.items()}
            self.reload()

    def reload(self) -> None:
        """Read the configuration again, and close the store."""
        self.close()
        for name in ("loaded", "service"):
            self.__dict__.pop(name, None)

    def repeat_options(self, advice: str) -> str:
        """Add the given options that select the store to the commands in a hint or note."""
        given = {
            "--uri": redact_uri(self.uri) if self.uri else None,
            "--config": self.config,
            "--profile": self.profile,
        }

        def complete(found: re.Match[str]) -> str:
            command = found[1]
            for option, value in given.items():
                if value and option not in command:
                    command += f" {option} {_quote(value)}"
            return f"'edenmem {command}'"

        return _SUGGESTED.sub(complete, advice)

    def options_elsewhere(self, config: Path | None) -> list[str]:
        """Return the options for this store and these settings in any folder and shell.

        ``config`` is the configuration file to name.

        Raises:
            UsageError: An option contains a password, which the command would expose.
        """
        from edenmem.engine.factory import store_uri

        words = ["--config", str(config)] if config else []
        if profile := self.profile or os.environ.get("EDENMEM_PROFILE"):
            words += ["--profile", profile]
        for key, value in self.overrides.items():
            words += ["--set", f"{key}={value}"]
        if self.read_only:
            words.append("--read-only")
        origin = self.loaded.origins["store.uri"]
        if not any(origin.startswith(str(file)) for file in self.loaded.files):
            words += ["--uri", store_uri(self.settings)]
        for word in words:
            if has_password(word):
                raise UsageError(
                    f"a password would be visible to others: {redact_uri(word)}",
                    hint="put it into a configuration file with mode 0600, and name that file with"
                    " --config",
                )
        return words

    def advise_on_default_store(self, error: StoreError) -> None:
        """Add a hint if nothing names a store and the default one does not exist.

        Usually the command runs outside the folder of its configuration file.
        """
        if "loaded" not in self.__dict__ or self.settings.store.uri:
            return
        from edenmem.engine.factory import default_sqlite_path

        if not default_sqlite_path().exists():
            error.add_hint("for an existing store, use --uri or the folder of its edenmem.toml")

    def close(self) -> None:
        """Close the store if it is open."""
        opened = self.__dict__.get("service")
        if opened is not None:
            opened.close_store()

    # -- for commands ------------------------------------------------------------------------

    @cached_property
    def out(self) -> Output:
        """Return the output for results and notes."""
        notes = None
        if self.log_format == "json":
            from edenmem.cli.app.logs import note_logger

            self._has_log = True
            notes = note_logger()
        return Output(
            self.format or format_of(self.output or ""),
            quiet=self.quiet,
            color=self.color,
            notes=notes,
            advise=self.repeat_options,
            find_names=lambda items: self.service.scopes.labels(items),
        )

    @cached_property
    def loaded(self) -> LoadedSettings:
        """Load the settings with their origins."""
        from edenmem.settings.load import load_settings

        overrides, options = dict(self.overrides), dict(self._options)
        if self.uri is not None:
            overrides["store.uri"], options["store.uri"] = self.uri, "--uri"
            if has_password(self.uri):
                self.out.note(
                    "warning: the password in --uri is visible in the process list; use"
                    " EDENMEM_URI or a configuration file instead"
                )
        if self.read_only:
            overrides["store.read_only"], options["store.read_only"] = "true", "--read-only"
        loaded = load_settings(
            config=Path(self.config) if self.config else None,
            profile=self.profile,
            overrides=overrides,
            options=options,
        )
        for warning in loaded.warnings:
            self.out.note(f"warning: {warning}")
        warnings.showwarning = self._show_warning
        return loaded

    def _show_warning(
        self, message: Warning | str, category: type[Warning], *place: object, **other: object
    ) -> None:
        """Print warnings of the engine; ignore those of libraries."""
        if issubclass(category, EdenmemWarning):
            self.out.note(f"warning: {message}")

    @property
    def settings(self) -> Settings:
        """Return the settings."""
        return self.loaded.settings

    def files_in_use(self) -> list[Path]:
        """Return the configuration files and the files of a SQLite store."""
        try:
            loaded = self.loaded
            store = sqlite_path(loaded.settings.store.uri)
        except ConfigError:  # a command that needs settings fails
            return [Path(self.config)] if self.config else []
        if store is None:
            return list(loaded.files)
        real = Path(os.path.realpath(store))  # SQLite writes its side files next to it
        sides = [real.with_name(real.name + end) for end in ("-wal", "-shm", "-journal")]
        return [*loaded.files, real, *sides]

    def must_write(self, words: str) -> None:
        """Check that a command may write.

        Raises:
            WriteRefused: ``store.read_only`` is set.
        """
        if self.settings.store.read_only:
            origin = self.loaded.origins["store.read_only"]
            what = "--read-only is set" if self.read_only else f"{origin} sets store.read_only"
            raise WriteRefused(f"'{words}' writes to the store, but {what}")

    @cached_property
    def service(self) -> MemoryService:
        """Create the service without models; see `serve` for work that needs them."""
        from edenmem.engine.service import MemoryService

        return MemoryService.without_models(self.settings, find_actor=lambda: self.actor)

    @property
    def resolver(self) -> Resolver:
        """Return the resolver of names and ID prefixes."""
        return self.service.resolver.suggesting()

    @cached_property
    def actor(self) -> Actor:
        """Return the actor of audit entries: ``EDENMEM_ACTOR`` or the user of the machine.

        All changes of a process have the same run ID, so that they can be undone together.
        """
        import getpass
        import socket

        try:
            name = os.environ.get("EDENMEM_ACTOR") or getpass.getuser()
        except (KeyError, OSError):  # a container without a user entry
            name = f"uid {os.getuid()}"
        return Actor(name=name, host=socket.gethostname(), command=self.command, run_id=new_id())

    def serve(
        self,
        work: Callable[[MemoryService], Awaitable[T]],
        *,
        llm: bool = False,
        reranker: bool = True,
        asking: Callable[[str], None] | None = None,
        on_demand: bool = False,
    ) -> T:
        """Run async work on the service with the configured models.

        ``llm`` includes the language model, ``reranker`` the one of searches; ``asking`` is called
        with the task of each request. The models are closed afterwards; the store stays open.
        ``on_demand`` starts an event loop only if the work demands one, see
        `edenmem.engine.runtime.concurrency.run`: loading asyncio takes longer than most searches.
        """
        from edenmem.cli.app.logs import start_logging

        self._has_log = True
        start_logging(self.verbosity, is_json=self.log_format == "json")

        async def main() -> T:
            models = self.service.with_models(llm=llm, reranker=reranker, asking=asking)
            async with models as service:
                if service.script:
                    self.out.note(service.script)
                return await work(service)

        if on_demand:
            from edenmem.engine.runtime.concurrency import run

            return run(main())
        import asyncio

        return asyncio.run(main())

    def with_models(self, work: Callable[[MemoryService], T]) -> T:
        """Run work that needs the embedding model, and waits for nothing."""

        async def run(service: MemoryService) -> T:
            return work(service)

        return self.serve(run)

    def end_log(self) -> None:
        """Remove the log handler if one was added."""
        if self._has_log:
            from edenmem.cli.app.logs import stop_logging

            stop_logging()

    def edit(self, work: Callable[[Reviewer], T], *, embed: bool = False) -> T:
        """Run work on the editor; ``embed`` creates vectors for facts."""
        if not embed:
            return work(self.service.editor)
        return self.serve(lambda service: service.edit(work), reranker=False)

    def confirm(
        self,
        question: str,
        *,
        yes: bool,
        can_look: bool = True,
        otherwise: str = "nothing was changed",
    ) -> None:
        """Ask for confirmation, as `prompts.confirm`; without it, end the command with a note."""
        if not confirm(question, yes=yes, can_look=can_look):
            self.out.note(otherwise)
            raise typer.Exit


def _quote(word: str) -> str:
    """Quote a word for a shell, in double quotes, since the whole command is in single ones."""
    if shlex.quote(word) == word:
        return word
    escaped = re.sub(r'(["\\$`])', r"\\\1", word)
    return f'"{escaped}"'


def end_if(failed: object, code: ExitCode = ExitCode.SOME_FAILED) -> None:
    """End the command with an exit code, 1 by default, if something failed."""
    if failed:
        raise typer.Exit(code)


#: Options whose values the audit log stores; of others it stores only the name.
_AUDITED = frozenset({"agent", "scope", "shard", "dry_run", "force", "yes", "version", "limit"})


def command_line(ctx: Any) -> str:
    """Return the command for the audit log, without contents, secrets and user names."""
    words = [str(ctx.command_path)]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        source = ctx.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = ctx.params.get(name)
        if parameter.param_type_name == "argument":
            words.append("…")
        elif isinstance(value, bool):
            words.append(parameter.opts[0] if value else (parameter.secondary_opts or [""])[0])
        else:
            words.append(f"{parameter.opts[0]} {value if name in _AUDITED else '…'}")
    return " ".join(words)
