"""How edenmem was installed: how to start it, and to install an extra."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Any

_CLONE = Path(__file__).resolve().parents[2]


def install_hint(*extras: str) -> str:
    """Return the command that installs extras the way edenmem was installed.

    Never from a package index: edenmem is on none, so its name there could be anyone's.
    """
    wanted = f"[{','.join(extras)}]"
    if (_CLONE / "pyproject.toml").is_file():
        return f'pip install -e ".{wanted}" in the clone of edenmem'
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        installed = distribution("edenmem")
    except PackageNotFoundError:
        return _in_a_clone(wanted)
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    requirement = _requirement(origin, wanted)
    if not requirement:
        return _in_a_clone(wanted)
    is_of_uv = (installed.read_text("INSTALLER") or "").strip() == "uv"
    return _command(shlex.quote(requirement), is_of_uv=is_of_uv)


def own_command() -> list[str]:
    """Return the command that starts edenmem from any folder."""
    interpreter = Path(sys.executable).absolute()
    script = interpreter.with_name("edenmem")
    if script.is_file() and os.access(script, os.X_OK):
        return [str(script)]
    return [str(interpreter), "-m", "edenmem"]


def _in_a_clone(wanted: str) -> str:
    return f'pip install ".{wanted}" in a clone of edenmem'


def _requirement(origin: dict[str, Any], wanted: str) -> str:
    """Return edenmem with extras, from where it came (PEP 610); "" if that is gone or unknown."""
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    url = origin.get("url", "")
    if "vcs_info" in origin:
        version = origin["vcs_info"]
        return f"edenmem{wanted} @ {version['vcs']}+{url}@{version['commit_id']}"
    if not url.startswith("file:"):
        return url and f"edenmem{wanted} @ {url}"
    path = url2pathname(urlsplit(url).path)
    return f"{path}{wanted}" if Path(path).exists() else ""


def _command(requirement: str, *, is_of_uv: bool) -> str:
    """Return the command that installs into this environment, or runs in another one of uvx."""
    import shutil

    environment = Path(sys.prefix)
    if (environment / "pipx_metadata.json").is_file():
        return f"pipx runpip {shlex.quote(environment.name)} install {requirement}"
    if (environment / "uv-receipt.toml").is_file():
        return f"uv tool install {requirement}"
    if environment.parent.name.startswith("archive-v"):  # the cache of uvx
        return f"uvx --from {requirement} edenmem"
    if is_of_uv:
        return f"uv pip install --python {shlex.quote(sys.executable)} {requirement}"
    own = shutil.which("pip")
    if own and Path(own).parent == Path(sys.executable).parent:
        return f"pip install {requirement}"
    return f"{shlex.quote(sys.executable)} -m pip install {requirement}"
