"""Memory as the store of a LangGraph graph.

    pip install . langgraph
    python examples/langgraph_store.py

The graph keeps what a user says and finds it again, in a conversation of its own. The answers are
scripted; put your model in their place.
"""

from __future__ import annotations

import tempfile
from typing import TypedDict
from uuid import uuid4

try:
    from langgraph.graph import END, START, StateGraph
    from langgraph.runtime import Runtime
except ImportError as error:
    raise SystemExit(f"{error}: install langgraph") from error

from edenmem import SyncMemoryService, load_settings
from edenmem.integrations.langgraph import EdenmemStore


class Turn(TypedDict, total=False):
    """One message of a user, and the answer."""

    user: str
    text: str
    answer: str


def reply(turn: Turn, runtime: Runtime) -> Turn:
    """Answer from memory, or remember what the user says."""
    assert runtime.store is not None
    mine = ("users", turn["user"], "notes")
    if not turn["text"].endswith("?"):
        runtime.store.put(mine, str(uuid4()), {"text": turn["text"]})
        return {"answer": "I will remember."}
    found = runtime.store.search(mine, query=turn["text"], limit=1)
    return {"answer": f"You said: {found[0].value['text']}" if found else "I do not know."}


def main(folder: str) -> None:
    """Tell the graph a fact, and ask for it as the same user and as another one."""
    settings = load_settings(overrides={"store.uri": f"sqlite:///{folder}/memory.db"}).settings
    with SyncMemoryService.from_settings(settings) as service:
        service.initialize()
        builder = StateGraph(Turn)
        builder.add_node("reply", reply)
        builder.add_edge(START, "reply")
        builder.add_edge("reply", END)
        graph = builder.compile(store=EdenmemStore(service, agent="mira"))
        for user, text in (
            ("lena", "My workshop opens on 3 March."),
            ("lena", "When does my workshop open?"),
            ("olga", "When does my workshop open?"),
        ):
            turn = graph.invoke({"user": user, "text": text})
            print(f"{user}: {text}\nmira: {turn['answer']}")
        (fact,) = service.memory_for("mira", user="lena").facts(shared=False)
        print(f"In edenmem: {fact.content}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
