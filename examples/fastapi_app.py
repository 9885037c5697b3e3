"""A chat application with memory in a FastAPI route.

    pip install . fastapi uvicorn
    OPENAI_API_KEY=… uvicorn --app-dir examples fastapi_app:app
    curl localhost:8000/chats/first -H 'content-type: application/json' \\
        -d '{"user": "lena", "text": "My workshop opens on 3 March."}'

Chats and users have keys of the application. Memories are formed in the background, after the
answer is sent.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import BackgroundTasks, FastAPI
from openai import AsyncOpenAI
from pydantic import BaseModel

from edenmem import MemoryService

AGENT = "mira"
MODEL = os.environ.get("CHAT_MODEL", "gpt-5-mini")

if not os.environ.get("OPENAI_API_KEY"):  # here, since uvicorn reports errors of a start at length
    sys.exit("OPENAI_API_KEY is not set")


class Question(BaseModel):
    """A message of a user."""

    user: str
    text: str


class Answer(BaseModel):
    """The answer of the agent."""

    text: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open and close memory and the model with the application."""
    async with MemoryService.from_settings() as memory, AsyncOpenAI() as model:
        await memory.initialize()
        app.state.memory, app.state.model = memory, model
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/chats/{chat}")
async def chat(chat: str, question: Question, later: BackgroundTasks) -> Answer:
    """Answer with memory of the user, and form memories of the turn."""
    memory: MemoryService = app.state.memory
    await memory.ensure_session(chat, agents=[AGENT], users=[question.user])
    context = await memory.get_memory_context(chat, message=question.text, recall="always")
    message: dict[str, Any] = {"role": "user", "content": question.text}
    prompt: list[Any] = [
        {"role": "system", "content": f"You are Mira. You remember:\n{context}"},
        message,
    ]
    answer = await app.state.model.chat.completions.create(model=MODEL, messages=prompt)
    text = answer.choices[0].message.content or ""
    await memory.add_messages(chat, [message, {"role": "assistant", "content": text}])
    if memory.can_form:
        later.add_task(memory.maybe_form_memories, chat)
    return Answer(text=text)
