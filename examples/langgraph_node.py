"""Memory as nodes of a LangGraph graph: recall, answer, remember.

    pip install . langgraph langchain-openai
    OPENAI_API_KEY=… python examples/langgraph_node.py lena "When does my workshop open?"

This uses the synchronous facade, for programs without an event loop.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TypedDict

from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

from edenmem import SyncMemoryService

MODEL = os.environ.get("CHAT_MODEL", "gpt-5-mini")


class Turn(TypedDict, total=False):
    """One question and its answer."""

    user: str
    text: str
    context: str
    answer: str


def build_graph(service: SyncMemoryService, model: ChatOpenAI) -> StateGraph[Turn]:
    """Build the graph; each user has one conversation."""

    def recall(state: Turn) -> Turn:
        session = service.ensure_session(
            f"graph-{state['user']}", agents=["mira"], users=[state["user"]]
        )
        found = service.get_memory_context(session.id, message=state["text"], recall="always")
        return {"context": found}

    def answer(state: Turn) -> Turn:
        about = SystemMessage(f"You are Mira. You remember:\n{state['context']}")
        return {"answer": str(model.invoke([about, HumanMessage(state["text"])]).content)}

    def remember(state: Turn) -> Turn:
        chat = f"graph-{state['user']}"
        service.add_messages(
            chat,
            [
                {"role": "user", "content": state["text"]},
                {"role": "assistant", "content": state["answer"]},
            ],
        )
        if service.service.can_form:
            service.maybe_form_memories(chat)
        return {}

    graph = StateGraph(Turn)
    graph.add_node("recall", recall)
    graph.add_node("answer", answer)
    graph.add_node("remember", remember)
    graph.add_edge(START, "recall")
    graph.add_edge("recall", "answer")
    graph.add_edge("answer", "remember")
    graph.add_edge("remember", END)
    return graph


def main(user: str, text: str) -> str:
    """Run the graph once."""
    with SyncMemoryService.from_settings() as service:
        service.initialize()
        graph = build_graph(service, ChatOpenAI(model=MODEL)).compile()
        return str(graph.invoke({"user": user, "text": text})["answer"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Ask a graph that recalls, answers and remembers.")
    parser.add_argument("user", help="name of the user who asks")
    parser.add_argument("question")
    given = parser.parse_args()
    if not os.environ.get("OPENAI_API_KEY"):
        sys.exit("OPENAI_API_KEY is not set")
    print(main(given.user, given.question))
