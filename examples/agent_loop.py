"""An agent that remembers: MemoryService in the loop of a chat program.

    python examples/agent_loop.py            # a new database in a temporary folder
    python examples/agent_loop.py my.db      # a database that stays; run it again to see more

Two visits of the same person, some days apart. With an endpoint configured (OPENAI_API_KEY, or
EDENMEM_LLM_BASE_URL), a model answers and memories are formed by it. Without one, the agent's
lines and the memories come from the files in examples/community, and no model is asked.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from edenmem.engine import factory
from edenmem.engine.service import MemoryService
from edenmem.models.host import Agent, Message, Session, User
from edenmem.models.ids import derived_id
from edenmem.settings.load import load_settings
from edenmem.settings.schema import FormationSettings, LLMSettings, Settings, StoreSettings

COMMUNITY = Path(__file__).parent / "community"
VISITS = ("lena-first-visit", "lena-progress")

LENA = User(id=derived_id("user", "lena"), username="lena")
MIRA = Agent(
    id=derived_id("agent", "mira"),
    username="mira",
    name="Mira",
    user_memory_enabled=True,
    agent_memory_enabled=True,
)


def configure(database: Path) -> Settings:
    """What the environment and edenmem.toml say, but with this database, and with scripted
    memories if no endpoint is configured."""
    settings = msgspec.structs.replace(
        load_settings().settings, store=StoreSettings(uri=f"sqlite:///{database.resolve()}")
    )
    answers = COMMUNITY / "answers.jsonl"
    endpoint = settings.llm.api_key or settings.llm.base_url or settings.llm.provider == "replay"
    if endpoint or not answers.exists():
        return settings
    return msgspec.structs.replace(
        settings,
        llm=LLMSettings(provider="replay", replay=str(answers)),
        formation=FormationSettings(dedup=False),  # written answers cannot compare with a database
    )


async def reply(settings: Settings, context: str, history: list[Message], scripted: str) -> str:
    """The agent's next line: from the endpoint if there is one, else as scripted."""
    if settings.llm.provider == "replay" or not (settings.llm.api_key or settings.llm.base_url):
        return scripted
    from openai import AsyncOpenAI

    prompt: list[Any] = [{"role": "system", "content": f"You are Mira. You remember:\n{context}"}]
    prompt += [{"role": message.role, "content": message.content} for message in history]
    llm = settings.llm
    async with AsyncOpenAI(api_key=llm.api_key or "none", base_url=llm.base_url or None) as client:
        answer = await client.chat.completions.create(model=llm.fast_model, messages=prompt)
    return answer.choices[0].message.content or ""


async def visit(
    service: MemoryService, settings: Settings, name: str, script: list[dict[str, Any]]
) -> None:
    """One session: for each line of the person, context, answer, messages, memories."""
    session = Session(
        id=derived_id("session", name), name=name, agents=(MIRA.id,), users=(LENA.id,)
    )
    service.store.host.put_session(session)
    print(f"\n=== {name}: what Mira has in mind at the start\n")
    print((await service.on_session_start(session.id)).xml)

    history: list[Message] = []
    for number, line in enumerate(script):
        if line["role"] != "user":
            continue
        following = script[number + 1] if number + 1 < len(script) else line
        answered = following["role"] == "assistant"
        turn = [_message(session, line, LENA.id, line["content"])]
        context = await service.get_memory_context(session.id, message=line["content"])
        if answered:
            text = await reply(settings, context, history + turn, following["content"])
            turn.append(_message(session, following, MIRA.id, text))
        history += turn
        await service.add_messages(session.id, turn)
        if service.can_form:
            await service.maybe_form_memories(session.id)

    if not service.can_form:
        print("\nNo language model is configured, so nothing is formed from this conversation.")
        return
    for report in await service.on_session_end(session.id):
        print(
            f"\nAt the end: {report.outcome}; {report.messages} messages gave "
            f"{report.facts_added} facts and {sum(report.reflections.values())} reflections."
        )


def _message(session: Session, line: dict[str, Any], sender: str, content: str) -> Message:
    said_at = datetime.fromisoformat(line["created_at"])
    key = derived_id("message", session.id, line["created_at"], line["role"])
    return Message(
        id=key,
        session_id=session.id,
        role=line["role"],
        content=content,
        created_at=said_at,
        sender=sender,
    )


async def main(database: Path) -> None:
    """Both visits, then a search."""
    settings = configure(database)
    lines = (COMMUNITY / "sessions.jsonl").read_text("utf-8").splitlines()
    scripts = {entry["session"]: entry["messages"] for entry in map(json.loads, lines)}
    async with MemoryService(
        factory.open_store(settings),
        settings,
        llm=factory.open_llm(settings),
        embedder=factory.open_embedder(settings),
    ) as service:
        service.store.database.initialise()
        service.store.host.add_user(LENA)
        service.store.host.add_agent(MIRA)
        for name in VISITS:
            await visit(service, settings, name, scripts[name])

        found = await service.search(["paper order"], agent_id=MIRA.id, user_id=LENA.id)
        print('\n=== A search for "paper order"\n')
        for hit in found.hits[:3]:
            print(f"{hit.score:.2f}  {hit.fact.content}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(Path(folder) / "memory.db"))
