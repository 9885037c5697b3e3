"""The memory tool of Claude, with its files in edenmem.

    pip install . anthropic
    python examples/claude_memory_tool.py

The commands are scripted, as Claude sends them. With a key, pass the tool to a client:

    client.beta.messages.tool_runner(model=…, tools=[tool], messages=…)
"""

from __future__ import annotations

import tempfile

from edenmem import SyncMemoryService, load_settings

try:
    from edenmem.integrations.claude import SyncEdenmemMemoryTool
except ImportError as error:
    raise SystemExit(str(error)) from error

NOTES = "/memories/lena.md"
SCRIPT: list[dict[str, object]] = [
    {"command": "create", "path": NOTES, "file_text": "# Lena\nThe workshop opens in May.\n"},
    {"command": "str_replace", "path": NOTES, "old_str": "in May", "new_str": "on 3 March"},
    {"command": "view", "path": "/memories"},
    {"command": "view", "path": NOTES},
]


def main(folder: str) -> None:
    """Run the commands, and find the file as a fact."""
    settings = load_settings(overrides={"store.uri": f"sqlite:///{folder}/memory.db"}).settings
    with SyncMemoryService.from_settings(settings) as service:
        service.initialize()
        service.ensure_agent("mira")
        service.ensure_user("lena")
        memory = service.memory_for("mira", user="lena")
        tool = SyncEdenmemMemoryTool(memory)
        for command in SCRIPT:
            print(tool.call(command))
        hit = memory.search("When does the workshop open?").hits[0]
        print(f"Found in {hit.fact.key}, version {hit.fact.version}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
