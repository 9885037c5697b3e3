"""The wheel, as the type checker of another program sees it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

#: Uses only public names. The last lines have errors that a type checker must report.
PROGRAM = """
import edenmem
from edenmem import AgentMemory, Fact, MemoryService, SearchReport, SyncMemoryService


async def talk(service: MemoryService) -> list[Fact]:
    await service.ensure_session("chat", agents=["mira"], users=["lena"])
    await service.add_messages("chat", [{"role": "user", "content": "Hello."}])
    memory: AgentMemory = await service.memory_for("mira", user="lena")
    report: SearchReport = await memory.search("tea", top_k=3)
    await service.search(["tea"], agent_id="mira", recipe="text")
    return [hit.fact for hit in report.hits]


def block(service: SyncMemoryService) -> str:
    reveal_type(service.memory_for("mira"))
    reveal_type(service.search("tea", agent_id="mira"))
    return service.get_memory_context("chat")


def err(service: SyncMemoryService) -> int:
    service.search("tea")
    service.search("tea", agent_id="mira", topk=3)
    return service.get_memory_context("chat")
"""

#: Most of the time would go to the types of libraries that the program does not see.
SETTINGS = """
[mypy]
strict = True

[mypy-openai.*,pydantic.*,pydantic_core.*,pymongo.*,bson.*,numpy.*,rich.*,typer.*,yaml.*,httpx.*]
follow_imports = skip
"""


@pytest.mark.slow
def test_mypy_knows_the_types_of_the_built_wheel(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*build, "--wheel-dir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    # An environment with edenmem from the wheel, and dependencies from this one.
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "here.pth").write_text(sysconfig.get_path("purelib"))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    options = ["--config-file", "mypy.ini", "--cache-dir", str(tmp_path / "cache")]
    interpreter = ["--python-executable", str(tmp_path / "venv" / "bin" / "python")]
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *interpreter, str(program)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    said = checked.stdout
    assert 'Revealed type is "edenmem.engine.sync.SyncAgentMemory"' in said
    assert 'Revealed type is "edenmem.engine.reports.SearchReport"' in said
    errors = [line for line in said.splitlines() if ": error:" in line]
    assert [line.rsplit("[", 1)[1] for line in errors] == [
        "call-arg]",
        "call-arg]",
        "return-value]",
    ]
