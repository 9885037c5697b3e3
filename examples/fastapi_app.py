"""A chat application that remembers: memory in a FastAPI route.

    pip install fastapi uvicorn edenmem
    OPENAI_API_KEY=… uvicorn --app-dir examples fastapi_app:app
    curl localhost:8000/chats/first -H 'content-type: application/json' \\
        -d '{"user": "lena", "text": "My workshop opens on 3 March."}'

Chats and users are named by the application's own keys. Memory is formed in the background, after
the answer was sent.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import BackgroundTasks, FastAPI
from openai import AsyncOpenAI
from pydantic import BaseModel

from edenmem import MemoryService

AGENT = "mira"
MODEL = os.environ.get("CHAT_MODEL", "gpt-5-mini")


class Said(BaseModel):
    """What a user says."""

    user: str
    text: str


class Answer(BaseModel):
    """What the agent answers."""

    text: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open memory and the model with the application, and close them with it."""
    async with MemoryService.from_settings() as memory, AsyncOpenAI() as model:
        await memory.initialise()
        app.state.memory, app.state.model = memory, model
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chats/{chat}")
async def chat(chat: str, said: Said, later: BackgroundTasks) -> Answer:
    """Answer with what is remembered of the user, and remember what was said."""
    memory: MemoryService = app.state.memory
    await memory.ensure_session(chat, agents=[AGENT], users=[said.user])
    context = await memory.get_memory_context(chat, message=said.text, recall="always")
    question: dict[str, Any] = {"role": "user", "content": said.text}
    prompt: list[Any] = [
        {"role": "system", "content": f"You are Mira. You remember:\n{context}"},
        question,
    ]
    answer = await app.state.model.chat.completions.create(model=MODEL, messages=prompt)
    text = answer.choices[0].message.content or ""
    await memory.add_messages(chat, [question, {"role": "assistant", "content": text}])
    if memory.can_form:
        later.add_task(memory.maybe_form_memories, chat)
    return Answer(text=text)
