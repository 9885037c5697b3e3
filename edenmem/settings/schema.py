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
    """Address of the store: `sqlite:///FILE`, `mongodb://…` or `mongodb+srv://…`.

    Empty: a SQLite file in the user's data folder.
    """
    database: str = ""
    """MongoDB: name of the database. Empty: the one in the URI, otherwise `eden`."""
    read_only: bool = False
    """Refuse every command that would write."""
    embedding_storage: Literal["array", "bindata"] = "array"
    """MongoDB: how vectors are stored. `bindata` needs a third of the space."""
    bindata_beside_platform: bool = False
    """Allow `bindata` where the platform is in use, which cannot read it."""
    other_model_beside_platform: bool = False
    """Allow vectors of a model that the platform does not search with."""
    connect_timeout_seconds: Seconds = 4.0
    """MongoDB: time limit for finding a server."""
    busy_timeout_seconds: Seconds = 10.0
    """SQLite: how long to wait for another process that is writing."""
    search_timeout_seconds: Seconds = 10.0
    """Atlas: time limit for one search query."""
    sessions_collection: str = "sessions"
    """MongoDB: the platform's collection of sessions."""
    messages_collection: str = "messages"
    """MongoDB: the platform's collection of messages."""
    users_collection: str = "users3"
    """MongoDB: the platform's collection of users."""
    vector_index: IndexName = "memory2_facts_vector"
    """Atlas: name of the vector search index on facts."""
    text_index: IndexName = "memory2_facts_text"
    """Atlas: name of the text search index on facts."""


class LLMSettings(_Section, frozen=True, kw_only=True):
    """The OpenAI-compatible endpoint for formation and consolidation, or a replay file.

    ``prices``: model → [US dollars for a million input tokens, the same for output tokens].
    """

    provider: Literal["openai", "replay"] = "openai"
    """`openai`: any OpenAI-compatible endpoint. `replay`: recorded answers from a file."""
    base_url: str = ""
    """Address of the endpoint. Empty: `OPENAI_BASE_URL`, otherwise OpenAI's."""
    api_key: str = ""
    """Key of the endpoint. Empty: `OPENAI_API_KEY`."""
    fast_model: str = "gpt-5-mini"
    """Model for extraction, deduplication and recall."""
    slow_model: str = "gpt-5-mini"
    """Model for reflections and consolidation."""
    premium_model: str = "gpt-5.1"
    """Model for consolidating the texts of premium users."""
    replay: str = ""
    """File of recorded answers, for `provider = "replay"`."""
    record: str = ""
    """File that every answer of the endpoint is added to."""
    timeout_seconds: Seconds = 60.0
    """Time limit for one call."""
    retries: NotNegative = 4
    """Retries of a call that failed for a passing reason."""
    concurrency: Count = 8
    """Calls in flight at the same time."""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.0
    """Sampling temperature. Omitted for models that refuse it."""
    max_output_tokens: NotNegative = 0
    """Maximum length of one answer (0 = what its task needs)."""
    max_tokens: NotNegative = 0
    """Token budget of one run (0 = no limit)."""
    max_cost: Annotated[float, Meta(ge=0.0)] = 0.0
    """Cost limit of one run in US dollars, by `prices` (0 = no limit)."""
    prices: dict[str, tuple[float, float]] = {}
    """Model → [US dollars per million input tokens, per million output tokens]."""


class EmbeddingSettings(_Section, frozen=True, kw_only=True):
    """The embedding model. "auto": an endpoint if a key or URL is set, else the local model."""

    provider: Literal["auto", "openai", "local", "none"] = "auto"
    """`auto`: an endpoint if a key or address is set, otherwise the local model."""
    model: str = "text-embedding-3-small"
    """Model that an endpoint is asked for."""
    dimensions: NotNegative = 0
    """Length of its vectors (0 = the model's own)."""
    base_url: str = ""
    """Address of the endpoint. Empty: `OPENAI_BASE_URL`, otherwise OpenAI's."""
    api_key: str = ""
    """Key of the endpoint. Empty: `OPENAI_API_KEY`."""
    local_model: Literal["all-MiniLM-L6-v2", "multilingual-e5-small"] = "all-MiniLM-L6-v2"
    """Model that runs on this machine: English, or about a hundred languages."""
    local_path: str = ""
    """Folder with another ONNX model and its `tokenizer.json`."""
    batch_size: Count = 100
    """Texts in one request."""
    timeout_seconds: Seconds = 60.0
    """Time limit for one request."""
    retries: NotNegative = 4
    """Retries of a request that failed for a passing reason."""
    prices: dict[str, float] = msgspec.field(
        default_factory=lambda: {"text-embedding-3-small": 0.02}
    )
    """Model → US dollars per million tokens."""


class FormationSettings(_Section, frozen=True, kw_only=True):
    """When memories are formed, and how large they may be."""

    extraction: Literal["two-step", "single"] = "two-step"
    """`two-step`: facts, then reflections. `single`: both in one call."""
    message_interval: Count = 45
    """New messages that make a formation due."""
    token_interval: Count = 1500
    """New weighted tokens that make a formation due, whichever comes first."""
    min_messages: Count = 4
    """Minimum number of messages at the end of a session and in a cold run."""
    weight_user: Share = 1.0
    """Share of a user's tokens that counts towards the interval."""
    weight_tool: Share = 0.5
    """Share of a tool's tokens that counts."""
    weight_agent: Share = 0.2
    """Share of the agent's tokens that counts."""
    weight_other: Share = 0.5
    """Share of all other tokens that counts."""
    characters_per_token: Annotated[float, Meta(gt=0)] = 4.5
    """Estimate of the length of a token."""
    max_messages: Count = 200
    """Messages in one range. A longer backlog is formed in several ranges."""
    max_characters: Count = 60_000
    """Characters in one range."""
    message_characters: Count = 8000
    """Characters of one message that the model sees; the middle is cut."""
    tool_characters: Count = 1000
    """The same limit for the input and the output of a tool."""
    fact_words: Count = 30
    """Maximum length of a fact in words."""
    reflection_words: Count = 35
    """Maximum length of a reflection in words."""
    facts_per_scope: Count = 10
    """Maximum number of facts from a range of `base_characters`."""
    reflections_per_scope: Count = 8
    """Maximum number of reflections from a range of `base_characters`."""
    base_characters: Count = 3000
    """Length of conversation for which the two limits above hold as written."""
    log_base: Annotated[float, Meta(gt=1)] = 4.0
    """Longer ranges: the limits grow with the logarithm to this base."""
    dedup: bool = True
    """Compare new facts with similar ones before storing them."""
    dedup_neighbours: Count = 5
    """Similar facts that each new fact is compared with."""
    dedup_floor: Share = 0.7
    """Minimum semantic score, (1 + cosine) / 2, of a similar fact."""
    lease_seconds: Seconds = 300.0
    """How long a process holds a range before another one may take it."""
    attempts: Count = 3
    """Attempts before a range is kept as failed."""
    backoff_seconds: Seconds = 60.0
    """Half the wait before the second attempt; each further wait is twice as long."""


class AcceptanceSettings(_Section, frozen=True, kw_only=True):
    """Which rules an item that a model wrote must pass to be remembered."""

    words_floor: Share = 0.6
    """Share of an item's words that must have been said; below it, a rewrite is requested."""
    words_reject: Share = 0.4
    """Items below this share after a rewrite are rejected; those between are weak."""
    sources: bool = True
    """Facts must cite messages of the range, at least one by a person."""
    names: bool = True
    """Names must have been mentioned."""
    numbers: bool = True
    """Numbers, dates and times must have been mentioned or follow from the conversation."""
    words: bool = True
    """Most content words must have been said (`words_floor`, `words_reject`)."""
    echo: bool = True
    """No text from the prompt's own instructions or example."""
    statement: bool = True
    """Items must be statements that can be understood on their own."""
    relative_dates: bool = True
    """No "tomorrow" or "last week"."""
    secrets: bool = True
    """No keys, passwords, card or account numbers."""
    orders: bool = True
    """No orders to the agent in memory that other users share."""


class ConsolidationSettings(_Section, frozen=True, kw_only=True):
    """How texts are rewritten."""

    concurrency: Count = 4
    """Texts that are rewritten at the same time."""
    conflict_retries: Count = 5
    """Retries after another process changed the text first."""


class ContextSettings(_Section, frozen=True, kw_only=True):
    """What goes into an agent's prompt."""

    cache_seconds: NotNegative = 300
    """How long a context may be reused (0 = build it every time)."""
    facts_limit: NotNegative = 40
    """Maximum number of recent facts."""
    facts_max_age_hours: NotNegative = 168
    """Maximum age of recent facts."""
    reflections_limit: NotNegative = 20
    """Maximum number of pending reflections per scope."""
    recall: Literal["off", "heuristic", "llm", "always"] = "off"
    """When to search for facts that the last message refers to."""
    recall_top_k: Count = 5
    """Maximum number of recalled facts."""
    recall_messages: Count = 10
    """Messages that recall reads."""
    recall_timeout_seconds: Seconds = 2.0
    """After this time the context is served without recalled facts."""


class SearchSettings(_Section, frozen=True, kw_only=True):
    """How facts are found. Scores of the semantic list are (1 + cosine) / 2.

    ``semantic_floor`` is by the embedding model unless it is set; 0 is no floor.
    ``recipe`` may name stages after the fusion: "convex+rerank+mmr". ``rerank_scores`` are what
    the reranker gives: "auto" takes those of an ONNX model to be logits, those of an endpoint to
    be probabilities.
    """

    recipe: RecipeName = "convex"
    """`convex`, `rrf`, `semantic` or `text`, with optional stages: `convex+rerank+mmr`."""
    top_k: Annotated[int, Meta(ge=1, le=100)] = 10
    """Maximum number of results."""
    semantic_weight: Share = 0.6
    """Weight of the semantic score in `convex`; the text score has the rest."""
    depth: Count = 50
    """Candidates that each of the two lists contributes."""
    semantic_floor: Share | None = None
    """Minimum semantic score (0 = none). Unset: chosen by the embedding model."""
    text_floor: Annotated[float, Meta(ge=0)] = 1.5
    """Atlas: minimum text score, on Lucene's scale."""
    rrf_k: Count = 60
    """Constant of reciprocal rank fusion."""
    rrf_floor: Annotated[float, Meta(ge=0)] = 0.0
    """Minimum score of `rrf`."""
    recency_weight: Share = 0.2
    """Weight of the age of a fact in the stage `recency`."""
    recency_days: Annotated[float, Meta(gt=0)] = 30.0
    """Age at which the recency score has fallen to 37 % (1/e)."""
    mmr_lambda: Share = 0.7
    """Stage `mmr`: 1 ranks by relevance alone, 0 by diversity alone."""
    rerank_path: str = ""
    """Folder with a cross-encoder (ONNX) and its `tokenizer.json`."""
    rerank_url: str = ""
    """Endpoint in the form of Cohere's and Jina's `/rerank`."""
    rerank_model: str = ""
    """Model that the endpoint is asked for."""
    rerank_api_key: str = ""
    """Key of the endpoint."""
    rerank_scores: Literal["auto", "logits", "probabilities"] = "auto"
    """Scale of the scores. `auto`: logits of ONNX models, probabilities of endpoints."""
    rerank_depth: Annotated[int, Meta(ge=1, le=1000)] = 50
    """Number of best candidates that are reranked."""
    rerank_floor: Share = 0.0
    """Minimum probability after reranking."""
    rerank_timeout_seconds: Seconds = 20.0
    """Time limit for reranking one search."""
    rerank_retries: NotNegative = 2
    """Retries of a rerank request that failed for a passing reason."""
    query_cache: NotNegative = 256
    """Query vectors that are kept on disk (0 = none)."""
    scan_limit: Count = 50_000
    """MongoDB without search indexes: maximum number of facts that a search scans."""
    analyzer: str = "lucene.english"
    """Atlas: analyzer of the text index."""
    fuzzy_expansions: Count = 15
    """Atlas: variants of a word, one edit away, that are searched."""


class ScopeSettings(_Section, frozen=True, kw_only=True):
    """The defaults of one kind of scope, which a scope's own policy overrides."""

    consolidate_at: Count
    """Pending reflections that make a consolidation due."""
    word_limit: Count
    """Maximum length of the text in words."""
    fact_buffer_max: NotNegative = 0
    """Maximum number of facts (0 = no limit)."""
    propagate: bool = False
    """Pass important changes of the text on to wider scopes."""


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
    """Minutes without a message after which a session is cold."""
    concurrency: Count = 3
    """Sessions that are formed at the same time."""
    session_timeout_seconds: Seconds = 600.0
    """Time limit for one session."""
    grace_seconds: NotNegative = 10
    """Time that sessions in progress get when a run has to end early."""
    outage_after: Count = 3
    """Sessions in a row that fail by an outage before the run ends."""


class BackupSettings(_Section, frozen=True, kw_only=True):
    """Backups on a schedule."""

    folder: str = ""
    """Folder of `edenmem export --keep N`. `edenmem doctor` examines its newest backup."""
    max_age_hours: Count = 36
    """Age from which `edenmem doctor` warns."""


class ServerSettings(_Section, frozen=True, kw_only=True):
    """The HTTP server, ``edenmem serve``."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8377
    """Port to listen on (0 = any free port)."""
    agent: str = ""
    """Agent of requests that name none."""
    user: str = ""
    """User of requests without a token that name none."""
    upstream_url: str = ""
    """Endpoint that chats are forwarded to. Unset: `llm.base_url`, with its key."""
    upstream_api_key: str = ""
    """Key for that endpoint. Unset: the caller's own bearer token is passed on."""
    upstream_timeout_seconds: Seconds = 600.0
    """Longest silence of the upstream."""
    users: dict[str, str] = {}
    """Name that a host calls a user, and the username or ID in edenmem."""
    create_users: bool = False
    """Add users that are not known."""
    store_chats: bool = True
    """Store what is said in chats."""
    recall: Literal["off", "heuristic", "llm", "always"] = "always"
    """When to search for facts that the last message refers to."""
    memory_top_k: NotNegative = 5
    """Maximum number of facts retrieved for a message; `memory_top_k` of a request overrides it."""
    memory_score_threshold: Share = 0.0
    """Minimum score of those facts; `memory_score_threshold` of a request overrides it."""
    context_timeout_seconds: Seconds = 2.0
    """After this time a chat is forwarded without its memory context."""
    search_timeout_seconds: Seconds = 2.0
    """After this time a chat is forwarded without retrieved facts."""
    store_timeout_seconds: Seconds = 5.0
    """After this time a chat is forwarded before its messages are stored."""
    formation_concurrency: Count = 2
    """Sessions that are formed at the same time, in the background."""
    shutdown_seconds: NotNegative = 30
    """Time for answers in progress when the server stops."""
    require_token: bool = False
    """Whether callers on this machine need a token too."""
    max_body_mb: Count = 32
    """Maximum size of a request's body, in megabytes."""
    max_requests: Count = 256
    """Maximum number of requests at the same time; more are answered with 503."""
    request_seconds: Seconds = 60.0
    """Time limit for receiving a body, and for the answer of a request to ``/api``."""
    daily_tokens: NotNegative = 0
    """Tokens of models that one user may use in a day (UTC), 0 for no limit."""
    daily_cost: Annotated[float, Meta(ge=0)] = 0.0
    """Cost in dollars that one user may cause in a day (UTC), 0 for no limit."""


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
    backup: BackupSettings = BackupSettings()
    server: ServerSettings = ServerSettings()


#: Settings whose values are never printed.
SECRETS = frozenset(
    {"llm.api_key", "embedding.api_key", "search.rerank_api_key", "server.upstream_api_key"}
)
