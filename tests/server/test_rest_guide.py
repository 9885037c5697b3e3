"""The guide to REST: it names every endpoint, and what it says to type works on a real server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.town import Town
from tests.support import readme

PAGE = readme.GUIDES / "rest.md"


@pytest.mark.slow
def test_the_guide_names_every_endpoint(town: Town) -> None:
    told = set(re.findall(r"^\| `([A-Z]+ /\S+)` \|", PAGE.read_text(), re.MULTILINE))
    there = {
        f"{method.upper()} {path}"
        for path, operations in town.app.openapi()["paths"].items()
        for method in operations
        if not path.startswith("/v1/")
    }
    assert told == there


@pytest.mark.slow
def test_what_the_guide_says_to_type_works(tmp_path: Path) -> None:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("EDENMEM_", "OPENAI_"))},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "EDENMEM_URI": f"sqlite:///{tmp_path}/memory.db",
        "EDENMEM_EMBEDDING_PROVIDER": "none",
    }

    def run(script: str, **more: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{script}"],
            env={**environment, **more},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    prepare, calls = readme.blocks("sh", PAGE)
    (token,) = re.findall(r"edm_\w+", run(prepare))
    serving = subprocess.Popen(
        ["edenmem", "serve", "--port", "0"],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    with serving:
        assert serving.stderr is not None
        try:
            line = next(each for each in serving.stderr if "listening on" in each)
            (url, *_) = re.findall(r"http://[0-9.]+:[0-9]+", line)
            printed = run(calls.replace("http://127.0.0.1:8377", url), TOKEN=token)
        finally:
            serving.terminate()
        serving.stderr.read()
    assert "paper lanterns" in printed
    assert '"content":"Answer Lena briefly.","version":1' in printed
    assert '"actor":"lena-phone"' in printed
    assert serving.returncode == 0
