"""`memory_tools`: memory as a toolset of Pydantic AI."""

from __future__ import annotations

from typing import Any

from edenmem import AgentMemory
from edenmem.integrations import REFUSALS, for_prompt, requires

with requires("pydantic-ai-slim"):
    from pydantic_ai import FunctionToolset, ModelRetry


def memory_tools(memory: AgentMemory) -> FunctionToolset[Any]:
    """Return tools that search, remember and forget facts, and instructions with the memory.

    The memory sets user and session, so that the model cannot choose them. What memory refuses, the
    model reads as a reason to try again.

    Args:
        memory: The memory, from `MemoryService.memory_for`.
    """

    async def instructions() -> str:
        """Return the memory for the prompt."""
        return for_prompt((await memory.context()).xml)

    async def search_memory(query: str) -> list[str]:
        """Search memory of the user and of earlier conversations.

        Args:
            query: A question or key phrase.
        """
        report = await memory.search(query)
        return [f"{hit.fact.id}: {hit.fact.content}" for hit in report.hits]

    async def remember_fact(fact: str) -> str:
        """Remember one lasting fact.

        Args:
            fact: One sentence with names and dates.
        """
        try:
            report = await memory.add_fact(fact)
        except REFUSALS as error:
            raise ModelRetry(f"not stored: {error.message}") from error
        return f"stored as {report.target_id}"

    async def forget_fact(fact_id: str) -> str:
        """Forget a fact that is wrong or no longer wanted.

        Args:
            fact_id: The ID of the fact, from a search.
        """
        try:
            await memory.forget_fact(fact_id)
        except REFUSALS as error:
            raise ModelRetry(f"not forgotten: {error.message}") from error
        return "forgotten"

    return FunctionToolset(
        [search_memory, remember_fact, forget_fact], id="edenmem", instructions=instructions
    )
