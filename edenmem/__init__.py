"""Long-term memory for AI agents: facts, reflections, and one consolidated text for each scope.

This package exports all public names; its modules may move. Names are imported on first use, which
keeps the import of the package cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from edenmem.engine.agent_memory import AgentMemory, FactOrigin
    from edenmem.engine.edits.editor import Editor
    from edenmem.engine.factory import open_embedder, open_llm, open_reranker, open_store
    from edenmem.engine.reports import (
        ConsolidationReport,
        ContextReport,
        EditReport,
        FormationReport,
        MemoryHit,
        ScopeStatus,
        SearchHit,
        SearchReport,
    )
    from edenmem.engine.scopes.references import Resolver
    from edenmem.engine.service import MemoryService, SearchOptions
    from edenmem.engine.sessions.importer import import_sessions
    from edenmem.engine.sync import SyncAgentMemory, SyncMemoryService
    from edenmem.errors import (
        AmbiguousReference,
        ConfigError,
        ConflictError,
        EdenmemError,
        EmbeddingModelMismatch,
        ExitCode,
        InputError,
        NotFoundError,
        ProviderError,
        ScopeError,
        StoreError,
        UnavailableError,
        UsageError,
    )
    from edenmem.models.changes import Actor
    from edenmem.models.formation import Trigger
    from edenmem.models.host import Agent, Message, Session, ToolCall, User
    from edenmem.models.ids import new_id
    from edenmem.models.memory import Consolidation, Fact, FactFields, Policy, Reflection
    from edenmem.models.scope import Scope, ScopeKind
    from edenmem.settings.load import load_settings
    from edenmem.settings.schema import Settings
    from edenmem.store.protocol.store import Store

_HOMES = {
    "Actor": "models.changes",
    "Agent": "models.host",
    "AgentMemory": "engine.agent_memory",
    "AmbiguousReference": "errors",
    "ConfigError": "errors",
    "ConflictError": "errors",
    "Consolidation": "models.memory",
    "ConsolidationReport": "engine.reports",
    "ContextReport": "engine.reports",
    "EdenmemError": "errors",
    "EditReport": "engine.reports",
    "Editor": "engine.edits.editor",
    "EmbeddingModelMismatch": "errors",
    "ExitCode": "errors",
    "Fact": "models.memory",
    "FactFields": "models.memory",
    "FactOrigin": "engine.agent_memory",
    "FormationReport": "engine.reports",
    "InputError": "errors",
    "MemoryHit": "engine.reports",
    "MemoryService": "engine.service",
    "Message": "models.host",
    "NotFoundError": "errors",
    "Policy": "models.memory",
    "ProviderError": "errors",
    "Reflection": "models.memory",
    "Resolver": "engine.scopes.references",
    "Scope": "models.scope",
    "ScopeError": "errors",
    "ScopeKind": "models.scope",
    "ScopeStatus": "engine.reports",
    "SearchHit": "engine.reports",
    "SearchOptions": "engine.service",
    "SearchReport": "engine.reports",
    "Session": "models.host",
    "Settings": "settings.schema",
    "Store": "store.protocol.store",
    "StoreError": "errors",
    "SyncAgentMemory": "engine.sync",
    "SyncMemoryService": "engine.sync",
    "ToolCall": "models.host",
    "Trigger": "models.formation",
    "UnavailableError": "errors",
    "UsageError": "errors",
    "User": "models.host",
    "import_sessions": "engine.sessions.importer",
    "load_settings": "settings.load",
    "new_id": "models.ids",
    "open_embedder": "engine.factory",
    "open_llm": "engine.factory",
    "open_reranker": "engine.factory",
    "open_store": "engine.factory",
}

__all__ = [
    "Actor",
    "Agent",
    "AgentMemory",
    "AmbiguousReference",
    "ConfigError",
    "ConflictError",
    "Consolidation",
    "ConsolidationReport",
    "ContextReport",
    "EdenmemError",
    "EditReport",
    "Editor",
    "EmbeddingModelMismatch",
    "ExitCode",
    "Fact",
    "FactFields",
    "FactOrigin",
    "FormationReport",
    "InputError",
    "MemoryHit",
    "MemoryService",
    "Message",
    "NotFoundError",
    "Policy",
    "ProviderError",
    "Reflection",
    "Resolver",
    "Scope",
    "ScopeError",
    "ScopeKind",
    "ScopeStatus",
    "SearchHit",
    "SearchOptions",
    "SearchReport",
    "Session",
    "Settings",
    "Store",
    "StoreError",
    "SyncAgentMemory",
    "SyncMemoryService",
    "ToolCall",
    "Trigger",
    "UnavailableError",
    "UsageError",
    "User",
    "__version__",
    "import_sessions",
    "load_settings",
    "new_id",
    "open_embedder",
    "open_llm",
    "open_reranker",
    "open_store",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"edenmem.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
