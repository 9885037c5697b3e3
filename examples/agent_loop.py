"""An agent that remembers: MemoryService in the loop of a chat program.

    python examples/agent_loop.py            # a new database in a temporary folder
    python examples/agent_loop.py my.db      # a database that stays; run it again to see more

Two visits of one user, some days apart. With an endpoint (OPENAI_API_KEY, or EDENMEM_LLM_BASE_URL),
a model writes the answers and forms memories. Without one, answers and memories come from the files
in examples/community.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from edenmem import MemoryService, Settings, load_settings

COMMUNITY = Path(__file__).parent / "community"
VISITS = ("lena-first-visit", "lena-progress")


def configure(database: Path) -> Settings:
    """Load the settings with this database, and with scripted memories without an endpoint."""
    overrides = {"store.uri": f"sqlite:///{database.resolve()}"}
    settings = load_settings(overrides=overrides).settings
    answers = COMMUNITY / "answers.jsonl"
    endpoint = settings.llm.api_key or settings.llm.base_url or settings.llm.provider == "replay"
    if endpoint or not answers.exists():
        return settings
    overrides |= {
        "llm.provider": "replay",
        "llm.replay": str(answers),
        "formation.dedup": "false",  # scripted answers do not know the database
    }
    return load_settings(overrides=overrides).settings


async def reply(settings: Settings, context: str, history: list[Any], scripted: str) -> str:
    """Return the agent's answer, from the endpoint or scripted."""
    if settings.llm.provider == "replay" or not (settings.llm.api_key or settings.llm.base_url):
        return scripted
    from openai import AsyncOpenAI

    prompt = [{"role": "system", "content": f"You are Mira. You remember:\n{context}"}, *history]
    llm = settings.llm
    async with AsyncOpenAI(api_key=llm.api_key or "none", base_url=llm.base_url or None) as client:
        answer = await client.chat.completions.create(model=llm.fast_model, messages=prompt)
    return answer.choices[0].message.content or ""


async def visit(
    service: MemoryService, settings: Settings, name: str, script: list[dict[str, Any]]
) -> None:
    """Run one session: context, answer, messages and memories for each user message."""
    await service.ensure_session(name, agents=["mira"], users=["lena"])
    print(f"\n=== {name}: Mira's memory at the start\n")
    print((await service.on_session_start(name)).xml)

    history: list[dict[str, Any]] = []
    for number, line in enumerate(script):
        if line["role"] != "user":
            continue
        turn = [{"role": "user", "content": line["content"]}]
        times = [line["created_at"]]
        context = await service.get_memory_context(name, message=line["content"])
        following = script[number + 1] if number + 1 < len(script) else line
        if following["role"] == "assistant":
            text = await reply(settings, context, history + turn, following["content"])
            turn.append({"role": "assistant", "content": text})
            times.append(following["created_at"])
        history += turn
        # With IDs of the host, a repeated turn is stored once.
        timed = [
            {**message, "created_at": at, "id": f"{at} {message['role']}"}
            for message, at in zip(turn, times, strict=True)
        ]
        await service.add_messages(name, timed)
        if service.can_form:
            await service.maybe_form_memories(name)

    if not service.can_form:
        print("\nNo language model is configured, so no memories are formed.")
        return
    for report in await service.on_session_end(name):
        print(
            f"\nFormation {report.outcome}: {report.messages} messages, "
            f"{report.facts_added} facts, {sum(report.reflections.values())} reflections"
        )


async def main(database: Path) -> None:
    """Run both visits, then a search."""
    settings = configure(database)
    lines = (COMMUNITY / "sessions.jsonl").read_text("utf-8").splitlines()
    scripts = {entry["session"]: entry["messages"] for entry in map(json.loads, lines)}
    async with MemoryService.from_settings(settings) as service:
        await service.initialize()
        for name in VISITS:
            await visit(service, settings, name, scripts[name])

        found = await service.search("paper order", agent_id="mira", user_id="lena")
        print('\n=== Search for "paper order"\n')
        for hit in found.hits[:3]:
            print(f"{hit.score:.2f}  {hit.fact.content}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Two visits of a user to an agent with memory.")
    parser.add_argument(
        "database", nargs="?", type=Path, help="SQLite file (default: a temporary one)"
    )
    database = parser.parse_args().database
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(database or Path(folder) / "memory.db"))
