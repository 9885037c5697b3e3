"""Every setting with its default. Names are those of ``edenmem.toml``; unknown ones are errors.

Defaults come from the production values of the platform's memory system where it has them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edenmem.settings.paths import MASK, redact_uri

Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
IndexName = Annotated[str, Meta(min_length=1)]
RecipeName = Annotated[str, Meta(pattern=r"^(convex|rrf|semantic|text)(\+(rerank|recency|mmr))*$")]


def _mask(name: str, value: object) -> object:
    if name.endswith("api_key"):
        return MASK if value else ""
    return (
        redact_uri(str(value))
        if name in {"uri", "base_url", "rerank_url", "upstream_url"}
        else value
    )


class _Section(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False
):
    """A table of the configuration file. Its ``repr`` shows no secret, so that no log does."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, _mask(name, getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({inside})"


class StoreSettings(_Section, frozen=True, kw_only=True):
    """Where memory lives. An empty ``uri`` is the file in the user's data folder."""

    uri: str = ""
    database: str = ""  # MongoDB: the name in the URI, or else "eden"
    read_only: bool = False  # refuse whatever would write to it
    embedding_storage: Literal["array", "bindata"] = "array"
    bindata_beside_platform: bool = False  # allow "bindata", which the platform cannot read
    other_model_beside_platform: bool = False  # allow vectors that the platform cannot search
    connect_timeout_seconds: Seconds = 4.0
    busy_timeout_seconds: Seconds = 10.0
    search_timeout_seconds: Seconds = 10.0  # of one query to the search indexes of Atlas
    sessions_collection: str = "sessions"
    messages_collection: str = "messages"
    users_collection: str = "users3"
    vector_index: IndexName = "memory2_facts_vector"  # Atlas: the search index of facts by meaning
    text_index: IndexName = "memory2_facts_text"  # Atlas: the search index of facts by words


class LLMSettings(_Section, frozen=True, kw_only=True):
    """The OpenAI-compatible endpoint for formation and consolidation, or a replay file.

    ``prices``: model → [US dollars for a million input tokens, the same for output tokens].
    """

    provider: Literal["openai", "replay"] = "openai"
    base_url: str = ""
    api_key: str = ""
    fast_model: str = "gpt-5-mini"
    slow_model: str = "gpt-5-mini"
    premium_model: str = "gpt-5.1"
    replay: str = ""
    record: str = ""
    timeout_seconds: Seconds = 60.0
    retries: NotNegative = 4
    concurrency: Count = 8
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.0  # left out for models that take none
    max_output_tokens: NotNegative = 0  # of one answer; 0: as its task needs
    max_tokens: NotNegative = 0  # for one run; 0: no limit
    max_cost: Annotated[float, Meta(ge=0.0)] = 0.0
    prices: dict[str, tuple[float, float]] = {}


class EmbeddingSettings(_Section, frozen=True, kw_only=True):
    """The embedding model. "auto": an endpoint if a key or URL is set, else the local model."""

    provider: Literal["auto", "openai", "local", "none"] = "auto"
    model: str = "text-embedding-3-small"
    dimensions: NotNegative = 0  # 0: the model's own
    base_url: str = ""
    api_key: str = ""
    local_model: Literal["all-MiniLM-L6-v2", "multilingual-e5-small"] = "all-MiniLM-L6-v2"
    local_path: str = ""  # a folder with another model
    batch_size: Count = 100
    timeout_seconds: Seconds = 60.0
    retries: NotNegative = 4
    prices: dict[str, float] = msgspec.field(
        default_factory=lambda: {"text-embedding-3-small": 0.02}
    )  # model → US dollars for a million tokens


class FormationSettings(_Section, frozen=True, kw_only=True):
    """When memories are formed, and how large they may be."""

    extraction: Literal["two-step", "single"] = "two-step"
    message_interval: Count = 45
    token_interval: Count = 1500
    min_messages: Count = 4
    weight_user: Share = 1.0
    weight_tool: Share = 0.5
    weight_agent: Share = 0.2
    weight_other: Share = 0.5
    characters_per_token: Annotated[float, Meta(gt=0)] = 4.5
    max_messages: Count = 200  # in one range; a longer backlog takes several
    max_characters: Count = 60_000
    message_characters: Count = 8000  # what the model sees of one message; the middle is cut
    tool_characters: Count = 1000  # the same for what a tool is asked, and for what it answers
    fact_words: Count = 30
    reflection_words: Count = 35
    facts_per_scope: Count = 10  # from a conversation of base_characters
    reflections_per_scope: Count = 8
    base_characters: Count = 3000  # the length at which limits on items are as they stand
    log_base: Annotated[float, Meta(gt=1)] = 4.0
    dedup: bool = True
    dedup_neighbours: Count = 5
    dedup_floor: Share = 0.7
    lease_seconds: Seconds = 300.0
    attempts: Count = 3
    backoff_seconds: Seconds = 60.0


class AcceptanceSettings(_Section, frozen=True, kw_only=True):
    """Which rules an item that a model wrote must pass to be remembered."""

    words_floor: Share = 0.6  # of the item's words that were said: below, it is sent back
    words_reject: Share = 0.4  # still below after that: rejected; between the two: kept as weak
    sources: bool = True  # facts name messages that were read, at least one by a person
    names: bool = True  # names were mentioned
    numbers: bool = True  # numbers, dates and times were mentioned, or follow from what was
    words: bool = True  # most content words were said (see the two limits)
    echo: bool = True  # no text of the prompt itself
    statement: bool = True  # a statement that can be understood alone
    relative_dates: bool = True  # no "tomorrow" or "last week"
    secrets: bool = True  # no keys, passwords, card or account numbers
    orders: bool = True  # no orders to the agent in memory that others read


class ConsolidationSettings(_Section, frozen=True, kw_only=True):
    """How texts are rewritten."""

    concurrency: Count = 4
    conflict_retries: Count = 5


class ContextSettings(_Section, frozen=True, kw_only=True):
    """What goes into an agent's prompt."""

    cache_seconds: NotNegative = 300
    facts_limit: NotNegative = 40
    facts_max_age_hours: NotNegative = 168
    reflections_limit: NotNegative = 20
    recall: Literal["off", "heuristic", "llm", "always"] = "off"
    recall_top_k: Count = 5
    recall_messages: Count = 10
    recall_timeout_seconds: Seconds = 2.0  # after that a context is served without


class SearchSettings(_Section, frozen=True, kw_only=True):
    """How facts are found. Scores of the semantic list are (1 + cosine) / 2.

    ``semantic_floor`` is by the embedding model unless it is set; 0 is no floor.
    ``recipe`` may name stages after the fusion: "convex+rerank+mmr". ``rerank_scores`` are what
    the reranker gives: "auto" takes those of an ONNX model to be logits, those of an endpoint to
    be probabilities.
    """

    recipe: RecipeName = "convex"
    top_k: Annotated[int, Meta(ge=1, le=100)] = 10
    semantic_weight: Share = 0.6
    depth: Count = 50
    semantic_floor: Share | None = None
    text_floor: Annotated[float, Meta(ge=0)] = 1.5  # Lucene's scale: on Atlas only
    rrf_k: Count = 60
    rrf_floor: Annotated[float, Meta(ge=0)] = 0.0
    recency_weight: Share = 0.2
    recency_days: Annotated[float, Meta(gt=0)] = 30.0
    mmr_lambda: Share = 0.7
    rerank_path: str = ""
    rerank_url: str = ""
    rerank_model: str = ""
    rerank_api_key: str = ""
    rerank_scores: Literal["auto", "logits", "probabilities"] = "auto"
    rerank_depth: Annotated[int, Meta(ge=1, le=1000)] = 50  # so many of the best are read
    rerank_floor: Share = 0.0
    rerank_timeout_seconds: Seconds = 20.0  # a search waits for it
    rerank_retries: NotNegative = 2
    query_cache: NotNegative = 256  # vectors of queries that are kept; 0: none
    scan_limit: Count = 50_000
    analyzer: str = "lucene.english"
    fuzzy_expansions: Count = 15  # Atlas: variants of a word, one edit away, that are searched


class ScopeSettings(_Section, frozen=True, kw_only=True):
    """The defaults of one kind of scope, which a scope's own policy overrides."""

    consolidate_at: Count
    word_limit: Count
    fact_buffer_max: NotNegative = 0  # 0: no limit
    propagate: bool = False


class ScopesSettings(_Section, frozen=True, kw_only=True):
    """The five kinds."""

    session: ScopeSettings = ScopeSettings(consolidate_at=4, word_limit=200)
    user: ScopeSettings = ScopeSettings(consolidate_at=4, word_limit=300)
    group: ScopeSettings = ScopeSettings(consolidate_at=10, word_limit=500)
    shard: ScopeSettings = ScopeSettings(consolidate_at=16, word_limit=1000)
    agent: ScopeSettings = ScopeSettings(consolidate_at=10, word_limit=1200)


class ColdSettings(_Section, frozen=True, kw_only=True):
    """Sessions that went quiet."""

    quiet_minutes: Count = 10
    concurrency: Count = 3
    session_timeout_seconds: Seconds = 600.0
    grace_seconds: NotNegative = 10  # for sessions in work when a run is to end early
    outage_after: Count = 3  # sessions in a row that a provider or the database fails: a run ends


class ServerSettings(_Section, frozen=True, kw_only=True):
    """The HTTP server, ``edenmem serve``.

    ``upstream_url`` is the endpoint that chats are forwarded to; empty: ``llm.base_url``, with the
    same key. ``users``: the name that a host calls a user → username or ID in edenmem.
    """

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8377  # 0: any free port
    agent: str = ""  # the agent of requests that name none
    upstream_url: str = ""
    upstream_api_key: str = ""  # sent where the caller brings no key of the upstream
    users: dict[str, str] = {}
    create_users: bool = False  # add users that nobody knows; never beside a platform by default
    shutdown_seconds: NotNegative = 30  # for answers in progress when the server stops


class Settings(_Section, frozen=True, kw_only=True):
    """The whole configuration."""

    store: StoreSettings = StoreSettings()
    llm: LLMSettings = LLMSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    formation: FormationSettings = FormationSettings()
    acceptance: AcceptanceSettings = AcceptanceSettings()
    consolidation: ConsolidationSettings = ConsolidationSettings()
    context: ContextSettings = ContextSettings()
    search: SearchSettings = SearchSettings()
    scopes: ScopesSettings = ScopesSettings()
    cold: ColdSettings = ColdSettings()
    server: ServerSettings = ServerSettings()


#: Settings whose values are never printed.
SECRETS = frozenset(
    {"llm.api_key", "embedding.api_key", "search.rerank_api_key", "server.upstream_api_key"}
)
