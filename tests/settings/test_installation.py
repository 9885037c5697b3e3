"""Hints that install an extra the way edenmem was installed (FAILURES 117)."""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from edenmem.settings import installation
from edenmem.settings.installation import install_hint

PACKAGE = Path(installation.__file__).parents[1]


class Installed:
    """An installed distribution with these records."""

    def __init__(self, origin: Any, installer: str) -> None:
        self._files = {"direct_url.json": json.dumps(origin), "INSTALLER": installer}

    def read_text(self, name: str) -> str | None:
        return self._files[name] if self._files[name] != "null" else None


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install edenmem in an environment in ``tmp_path``, from an origin."""

    def install(
        origin: Any, *, installer: str = "pip", receipt: str = "", folder: str = "env"
    ) -> str:
        environment = tmp_path / folder
        environment.mkdir(exist_ok=True, parents=True)
        if receipt:
            (environment / receipt).touch()
        monkeypatch.setattr(sys, "prefix", str(environment))
        monkeypatch.setattr(sys, "executable", str(environment / "bin" / "python"))
        monkeypatch.setattr(installation, "_CLONE", environment / "site-packages")
        found = Installed(origin, installer)
        monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
        return install_hint("ui")

    return install


def test_each_installation_has_its_command(installed: Any, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    wheel = tmp_path / "edenmem-0.1.0-py3-none-any.whl"
    wheel.touch()
    python = tmp_path / "env" / "bin" / "python"
    from_clone = {"url": clone.as_uri(), "dir_info": {}}
    repository = {"url": "https://git.example/e", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    assert installed(from_clone) == f"{python} -m pip install '{clone}[ui]'"
    assert installed({"url": wheel.as_uri(), "archive_info": {}}).endswith(f"install '{wheel}[ui]'")
    remote = {"url": "https://files.example/e.whl", "archive_info": {}}
    assert installed(remote).endswith("install 'edenmem[ui] @ https://files.example/e.whl'")
    assert installed(repository).endswith("install 'edenmem[ui] @ git+https://git.example/e@abc'")
    by_uv = installed(from_clone, installer="uv")
    assert by_uv == f"uv pip install --python {python} '{clone}[ui]'"
    for gone in (None, {"url": (tmp_path / "gone").as_uri(), "dir_info": {}}):
        assert installed(gone) == 'pip install ".[ui]" in a clone of edenmem'
    by_pipx = installed(from_clone, receipt="pipx_metadata.json")
    assert by_pipx == f"pipx runpip env install '{clone}[ui]'"
    by_uvx = installed(from_clone, installer="uv", folder="archive-v0/x1")
    assert by_uvx == f"uvx --from '{clone}[ui]' edenmem"
    as_tool = installed(from_clone, installer="uv", receipt="uv-receipt.toml", folder="tools/e")
    assert as_tool == f"uv tool install '{clone}[ui]'"


def test_the_pip_of_an_active_environment_has_a_short_name(
    installed: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = tmp_path / "env" / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    pip.touch(0o755)
    monkeypatch.setenv("PATH", str(pip.parent))
    hint = installed({"url": tmp_path.as_uri(), "dir_info": {}})
    assert hint == f"pip install '{tmp_path}[ui]'"


def test_in_a_clone_and_without_any_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert install_hint("mcp", "server") == 'pip install -e ".[mcp,server]" in the clone of edenmem'

    def fail(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(installation, "_CLONE", Path("/nowhere"))
    monkeypatch.setattr(importlib.metadata, "distribution", fail)
    assert install_hint("ui") == 'pip install ".[ui]" in a clone of edenmem'


def test_no_text_installs_edenmem_from_a_package_index() -> None:
    """The name is free on package indexes, so anyone may take it."""
    named = re.compile(r"(?:pip|pipx|uv|uvx)\b[^\n]*[\s\"']edenmem\[")
    for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.md")]:
        assert not named.search(path.read_text("utf-8")), path
