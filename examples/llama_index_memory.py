"""Memory of a LlamaIndex chat engine.

    pip install . llama-index-core
    python examples/llama_index_memory.py

The second engine continues the conversation of the first, and knows a fact about the user. The
model is a mock that repeats what it is given; put yours in its place.
"""

from __future__ import annotations

import tempfile

try:
    from llama_index.core.chat_engine import SimpleChatEngine
    from llama_index.core.llms import MockLLM
except ImportError as error:
    raise SystemExit(f"{error}: install llama-index-core") from error

from edenmem import SyncMemoryService, load_settings
from edenmem.integrations.llama_index import EdenmemMemory


def main(folder: str) -> None:
    """Chat with two engines in one conversation."""
    settings = load_settings(overrides={"store.uri": f"sqlite:///{folder}/memory.db"}).settings
    with SyncMemoryService.from_settings(settings) as service:
        service.initialize()
        service.ensure_agent("mira")
        service.ensure_user("lena")
        service.memory_for("mira", user="lena").add_fact("Lena's workshop opens on 3 March.")
        for text in ("Hello.", "When does my workshop open?"):
            memory = EdenmemMemory.from_defaults(
                service=service, session="chat-42", agent="mira", user="lena"
            )
            engine = SimpleChatEngine.from_defaults(llm=MockLLM(), memory=memory)
            print(f"lena: {text}\nmira sees:\n{engine.chat(text)}\n")
            if service.service.can_form:
                service.maybe_form_memories("chat-42")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
