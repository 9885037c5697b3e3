"""Schedules of a command for cron and systemd."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from string import ascii_letters, digits
from typing import TYPE_CHECKING, NamedTuple

from edenmem.errors import UsageError
from edenmem.settings.paths import FILE_NAME, redact_uri
from edenmem.settings.schema import SECRETS

if TYPE_CHECKING:
    from edenmem.cli.app.invocation import Invocation

#: Escapes in unit files: "%" begins a specifier and "$" a variable.
_SYSTEMD = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%", "$": "$$"})
_SAFE_FOR_SYSTEMD = frozenset(f"{ascii_letters}{digits}-_./:=@")


class Job(NamedTuple):
    """A scheduled command.

    Attributes:
        words: The command line.
        folder: The working folder; None for any.
        minutes: The interval between runs.
        stop_seconds: The time to stop after SIGTERM.
    """

    words: tuple[str, ...]
    folder: Path | None
    minutes: int
    stop_seconds: int


def cold_job(run: Invocation, *, minutes: int) -> Job:
    """Return a job for a cold run with the store and settings of this invocation.

    Raises:
        UsageError: The command line would contain a secret.
    """
    words = [*program(), "cold", "run", "--quiet"]
    config = run.config or os.environ.get("EDENMEM_CONFIG")
    if config:
        words += ["--config", str(Path(config).expanduser().absolute())]
    if profile := run.profile or os.environ.get("EDENMEM_PROFILE"):
        words += ["--profile", profile]
    if run.loaded.origins["store.uri"] in ("--uri", "--set", "EDENMEM_URI"):
        words += ["--uri", _without_secret("the store URI", run.settings.store.uri)]
    for key, value in run.overrides.items():
        if key in SECRETS:
            raise _secret(f"--set {key}")
        words += ["--set", f"{key}={_without_secret(f'--set {key}', value)}"]
    if any(not word.isprintable() for word in words):
        raise UsageError("a crontab cannot contain line breaks or control characters")
    here = Path.cwd()
    local = not config and any(path == here / FILE_NAME for path in run.loaded.files)
    return Job(
        words=tuple(words),
        folder=here if local else None,
        minutes=minutes,
        stop_seconds=run.settings.cold.grace_seconds + 20,
    )


def program() -> list[str]:
    """Return the command that starts edenmem from any folder."""
    interpreter = Path(sys.executable).absolute()
    script = interpreter.with_name("edenmem")
    if script.is_file() and os.access(script, os.X_OK):
        return [str(script)]
    return [str(interpreter), "-m", "edenmem"]


def environment_settings(run: Invocation) -> list[str]:
    """Return settings from environment variables, which cron and systemd do not pass on."""
    return [
        f"{key} ({origin})"
        for key, origin in run.loaded.origins.items()
        if origin in os.environ and origin != "EDENMEM_URI"
    ]


def crontab_line(job: Job) -> str:
    """Return a crontab line; cron reads an unescaped "%" as a line break, even in quotes."""
    command = shlex.join(job.words)
    if job.folder is not None:
        command = f"cd {shlex.quote(str(job.folder))} && {command}"
    return f"*/{job.minutes} * * * * {command} >/dev/null".replace("%", r"\%")


def systemd_service(job: Job) -> str:
    """Return a systemd service for one run."""
    folder = f"WorkingDirectory={str(job.folder).replace('%', '%%')}\n" if job.folder else ""
    return (
        "[Unit]\n"
        "Description=edenmem: form memories from idle sessions\n\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"{folder}"
        f"ExecStart={' '.join(map(_systemd_word, job.words))}\n"
        f"TimeoutStopSec={job.stop_seconds}\n"
        "UMask=0077\n"
    )


def systemd_timer(job: Job) -> str:
    """Return a systemd timer for the service."""
    return (
        "[Unit]\n"
        "Description=edenmem: form memories from idle sessions\n\n"
        "[Timer]\n"
        "OnBootSec=2min\n"
        f"OnUnitInactiveSec={job.minutes}min\n"
        "RandomizedDelaySec=30s\n\n"
        "[Install]\n"
        "WantedBy=timers.target\n"
    )


def _systemd_word(word: str) -> str:
    if word and set(word) <= _SAFE_FOR_SYSTEMD:
        return word
    return f'"{word.translate(_SYSTEMD)}"'


def _without_secret(what: str, value: str) -> str:
    if redact_uri(value) != value:
        raise _secret(what)
    return value


def _secret(what: str) -> UsageError:
    return UsageError(
        f"{what} contains a secret, which the process list would expose",
        hint="put the secret into a configuration file with mode 0600, and pass it with --config",
    )
