"""The tools, with their arguments and descriptions.

Descriptions say when to call a tool, what to pass and what it returns, in short sentences for
small models. No tool has an argument for an agent, a user or a session.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from inspect import Parameter, signature
from typing import Annotated, Any, get_type_hints

import msgspec
from mcp import types
from msgspec import Meta

from edenmem.engine.agent_memory import AgentMemory
from edenmem.errors import UsageError
from edenmem.invalid import explain_value
from edenmem.mcp import results
from edenmem.mcp.results import framed_json, framed_xml

_FactId = Annotated[
    str,
    Meta(
        pattern="^[0-9a-f]{24}$",
        description="The `id` of a fact, copied from a result of search_facts or list_facts.",
    ),
]
_Content = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1000,
        description="One short statement with names and dates, such as: "
        "Lena's workshop opens on 3 March 2026.",
    ),
]


async def search_facts(
    memory: AgentMemory,
    query: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=1000)]],
        Meta(
            min_length=1,
            max_length=3,
            description="1 to 3 questions or key phrases. Use several for different wordings.",
        ),
    ],
    top_k: Annotated[
        int, Meta(ge=1, le=100, description="Maximum number of facts for each query.")
    ] = 10,
    debug: Annotated[bool, Meta(description="Include scores and timings. Rarely needed.")] = False,
) -> results.FactSearch:
    """Search long-term memory for facts about people, projects, dates and earlier conversations.

    Call this tool before you say that you do not know something, and when the user refers to the
    past. It returns facts, best first. An empty list means that no fact matches.
    """
    report = await memory.search(query, top_k=top_k, explain=debug)
    return results.fact_search(report, debug=debug)


async def get_memory_context(
    memory: AgentMemory,
    message: Annotated[
        str,
        Meta(
            max_length=10_000,
            description="The user message to answer. Adds facts that match it. "
            "Omit it for the general context.",
        ),
    ] = "",
) -> results.MemoryContext:
    """Get the memory context of this conversation as XML.

    The context has summaries, recent observations and recent facts. Call this tool once at the
    start of a conversation.
    """
    asked = message.strip()
    report = await memory.context(message=asked or None, recall="always" if asked else "off")
    return results.memory_context(report)


async def list_facts(
    memory: AgentMemory,
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of facts.")] = 20,
    containing: Annotated[
        str, Meta(max_length=200, description="Only facts that contain this text.")
    ] = "",
    tag: Annotated[str, Meta(max_length=100, description="Only facts with this tag.")] = "",
) -> results.FactList:
    """List the newest facts in memory.

    Use this tool to show the user the facts in memory. Use search_facts to answer a question.
    """
    tags = (tag,) if tag else ()
    found = await memory.facts(limit=limit + 1, containing=containing, tags=tags)
    items = [results.fact_item(fact) for fact in found[:limit]]
    return results.FactList(facts=items, more=len(found) > limit)


async def explain_fact(memory: AgentMemory, fact_id: _FactId) -> results.FactSource:
    """Explain where a fact comes from.

    It returns the messages that the fact comes from, and its earlier versions. It needs the id of
    the fact.
    """
    return results.fact_source(await memory.why(fact_id))


async def remember(
    memory: AgentMemory,
    text: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=20_000,
            description="The text to remember, in full sentences with names and dates.",
        ),
    ],
) -> results.Remembered:
    """Store something for later conversations.

    Call this tool when the user asks you to remember something, or states a lasting fact. Write
    full sentences with the names of the people. Never store passwords, keys or card numbers. It
    returns the stored facts, and the reason for each fact that was not stored.
    """
    if memory.can_extract:
        return results.remembered(await memory.remember(text))
    return results.remembered_fact(await memory.add_fact(text))


async def edit_fact(
    memory: AgentMemory,
    fact_id: _FactId,
    version: Annotated[
        int, Meta(ge=1, description="The `version` of the fact, copied from the same result.")
    ],
    content: _Content,
) -> results.FactChange:
    """Replace the text of a fact that is wrong or out of date.

    First find the fact with search_facts. Then pass its id, its version and the new text. If the
    fact has changed, the call fails: search again.
    """
    return results.fact_change(await memory.edit_fact(fact_id, content, version=version))


async def forget_fact(memory: AgentMemory, fact_id: _FactId) -> results.FactChange:
    """Remove a fact from memory.

    Call this tool only when the user asks to forget something. First find the fact with
    search_facts. Then pass its id. An operator can restore the fact.
    """
    return results.fact_change(await memory.forget_fact(fact_id))


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, with the name, description, arguments and result of its function.

    ``patience`` multiplies the time limit of a call. ``statement`` is the argument that becomes one
    fact, if there is one.
    """

    run: Callable[..., Awaitable[msgspec.Struct]]
    title: str
    is_writing: bool = False
    is_destructive: bool = False
    is_idempotent: bool = True
    patience: int = 1
    statement: str = ""

    @property
    def name(self) -> str:
        """Return the name of the tool."""
        return self.run.__name__

    def described(self, memory: AgentMemory) -> types.Tool:
        """Return the tool in the format of the protocol."""
        schema = _schema(_arguments_of(self.run))
        if self.statement and not (self.run is remember and memory.can_extract):
            limited = schema["properties"][self.statement]
            limited["description"] += f" At most {memory.fact_words} words."
        return types.Tool(
            name=self.name,
            title=self.title,
            description=" ".join((self.run.__doc__ or "").split()),
            input_schema=schema,
            output_schema=_schema(get_type_hints(self.run)["return"]),
            annotations=types.ToolAnnotations(
                title=self.title,
                read_only_hint=not self.is_writing,
                destructive_hint=self.is_destructive,
                idempotent_hint=self.is_idempotent,
                open_world_hint=False,
            ),
        )

    async def call(
        self, memory: AgentMemory, arguments: Mapping[str, Any] | None
    ) -> types.CallToolResult:
        """Run the tool.

        Raises:
            UsageError: the arguments do not match the schema.
        """
        result = await self.run(memory, **_read(arguments or {}, _arguments_of(self.run)))
        if isinstance(result, results.MemoryContext):
            text = framed_xml(result.context)
        else:
            text = framed_json(result)
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)],
            structured_content=msgspec.to_builtins(result),
        )


_TOOLS = (
    Tool(run=search_facts, title="Search memory"),
    Tool(run=get_memory_context, title="Get the memory context"),
    Tool(run=list_facts, title="List facts"),
    Tool(run=explain_fact, title="Explain a fact"),
    Tool(
        run=remember,
        title="Remember",
        is_writing=True,
        is_destructive=True,  # it revises facts that the text contradicts
        is_idempotent=False,
        patience=5,  # several calls of a language model
        statement="text",
    ),
    Tool(
        run=edit_fact,
        title="Correct a fact",
        is_writing=True,
        is_destructive=True,
        statement="content",
    ),
    Tool(
        run=forget_fact,
        title="Forget a fact",
        is_writing=True,
        is_destructive=True,
    ),
)

TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in _TOOLS}


def tools_for(*, write: bool) -> dict[str, Tool]:
    """Return the tools for a client with or without write access."""
    return {name: tool for name, tool in TOOLS.items() if write or not tool.is_writing}


def _schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct, with an object at the top as the protocol requires."""
    schema = msgspec.json.schema(struct)
    definitions = schema.pop("$defs")
    own = definitions.pop(struct.__name__)
    own.pop("title", None)
    return {**own, "$defs": definitions} if definitions else dict(own)


@cache
def _arguments_of(run: Callable[..., Any]) -> type[msgspec.Struct]:
    """Return the arguments of a tool as a struct; unknown arguments are invalid."""
    hints = get_type_hints(run, include_extras=True)
    fields = [
        (each.name, hints[each.name])
        if each.default is Parameter.empty
        else (each.name, hints[each.name], each.default)
        for each in [*signature(run).parameters.values()][1:]  # the first one is the memory
    ]
    return msgspec.defstruct(run.__name__, fields, kw_only=True, forbid_unknown_fields=True)


def _read(arguments: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the arguments of a call.

    Numbers in quotes, null for a missing argument, and a query without a list are valid.

    Raises:
        UsageError: the arguments do not match the schema.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    if isinstance(given.get("query"), str):
        given["query"] = [given["query"]]
    try:
        return msgspec.structs.asdict(msgspec.convert(given, kind, strict=False))
    except msgspec.ValidationError as error:
        taken = ", ".join(kind.__struct_fields__)
        explained = explain_value(error, whole="the value")
        raise UsageError(f"{explained} (arguments: {taken})") from None
