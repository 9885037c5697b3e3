"""Local means local: real processes without any network but loopback (FAILURES 110, 111)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.waiting import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
#: Runs the command line. An access to the network is noted in a file, and fails.
CHILD = f"""
import os, runpy, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support import network

class Forbidden(network.NetworkForbidden):
    def __init__(self, words):
        super().__init__(words)
        with open(os.environ["REACHED"], "a") as file:
            file.write(words)

network.NetworkForbidden = Forbidden
network.forbid_network()
sys.argv[0] = "edenmem"
runpy.run_module("edenmem", run_name="__main__", alter_sys=True)
"""
FACT = "The Lantern Walk starts at 17:30 at the ferry hall."
#: Folders of edenmem in the home folder, and of the demo among temporary files.
OURS = re.compile(r"home/\.(?:local/share|config|cache)/edenmem/.+|tmp/edenmem-demo-[^/]+/.+|notes")


class Machine:
    """A machine with a key in its environment; ``folder`` has all files of its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reached = folder.with_name("reached")
        for name in ("home", "tmp"):
            (folder / name).mkdir(parents=True)
        foreign = re.compile("EDENMEM_.*|XDG_.*|OPENAI_.*|ORT_.*|.*_PROXY", re.IGNORECASE)
        kept = {name: value for name, value in os.environ.items() if not foreign.fullmatch(name)}
        self._environment = {
            **kept,
            "HOME": str(folder / "home"),
            "TMPDIR": str(folder / "tmp"),
            "OPENAI_API_KEY": "sk-of-another-program",
            "REACHED": str(self.reached),
        }

    def start(self, *command: str, notes: Path) -> subprocess.Popen[str]:
        with notes.open("w") as file:
            return subprocess.Popen(
                [sys.executable, "-c", CHILD, *command],
                env=self._environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def run(self, *command: str) -> str:
        notes = self.folder / "notes"
        code = self.start(*command, notes=notes).wait(timeout=120)
        said = notes.read_text()
        assert code == 0, said
        return said


def test_nothing_leaves_the_machine_and_no_file_is_elsewhere(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine")
    assert "Undone" in machine.run("demo")
    assert "embeddings: on this machine" in machine.run("init", "--yes")
    machine.run("agent", "add", "mira")
    add = ("fact", "add", "--agent", "mira", "--content", FACT)
    assert "embeddings: on this machine" in machine.run(*add)
    search = ("search", "when does the procession begin", "--agent", "mira", "--recipe", "semantic")
    assert FACT in machine.run(*search)
    notes = machine.folder / "notes"
    server = machine.start("serve", "--agent", "mira", "--port", "0", notes=notes)
    try:
        listens = re.compile(r"base URL for clients: (http://[^/]+)/")
        until(lambda: listens.search(notes.read_text()) or server.poll() is not None)
        found = listens.search(notes.read_text())
        assert found, notes.read_text()
        with httpx.Client(trust_env=False, timeout=60) as client:
            answer = client.get(f"{found[1]}/api/search", params={"q": "when is the procession"})
        assert FACT in answer.text
    finally:
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 0, notes.read_text()
    assert not machine.reached.exists(), machine.reached.read_text()
    # onnxruntime reports from native code, which no audit hook sees; it leaves an ID in ~/.cache.
    files = [str(f.relative_to(machine.folder)) for f in machine.folder.rglob("*") if f.is_file()]
    assert [name for name in files if not OURS.fullmatch(name)] == []


def test_onnxruntime_is_loaded_in_one_place_with_its_telemetry_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from edenmem import onnx

    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    onnx._import_onnxruntime()
    assert os.environ["ORT_DISABLE_TELEMETRY"] == "1"
    sources = (ROOT / "edenmem").rglob("*.py")
    loads = re.compile(r"(?:import|from) onnxruntime")
    assert [path.name for path in sources if loads.search(path.read_text())] == ["onnx.py"]
