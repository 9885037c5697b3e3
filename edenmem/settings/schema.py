"""All settings with their defaults. Names match ``edenmem.toml``; unknown names are errors.

The platform's own numbers differ from edenmem's. Where both work on the same memory (`DEFAULTS`),
the platform's apply, except for settings that the operator configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from edenmem.settings.paths import MASK, redact_uri


class Default(NamedTuple):
    """The default of a setting in a database of edenmem's own, and in one of the platform."""

    own: int | str
    platform: int | str


DEFAULTS: Mapping[str, Default] = {
    "formation.message_interval": Default(45, 25),
    "formation.token_interval": Default(1500, 1500),
    "formation.min_messages": Default(1, 4),
    # The platform reads every fact as certain.
    "formation.doubtful": Default("mark", "hold"),
    "scopes.session.consolidate_at": Default(4, 6),
    "scopes.session.word_limit": Default(200, 1500),
    "scopes.user.consolidate_at": Default(4, 4),
    "scopes.user.word_limit": Default(300, 600),
    "scopes.agent.consolidate_at": Default(10, 10),
    "scopes.agent.word_limit": Default(1200, 2000),
}

#: Percentage by which a new text may exceed its word limit, with a notice.
OVERFLOW = 20


def own_default(key: str) -> int:
    """Return the default in a database of edenmem's own."""
    number = DEFAULTS[key].own
    assert isinstance(number, int)
    return number


Count = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]
IndexName = Annotated[str, Meta(min_length=1)]
_LATER = r"rerank|recency|mmr"
RecipeName = Annotated[
    str,
    Meta(pattern=rf"^((convex|text)(\+(source|{_LATER}))*|(rrf|semantic)(\+({_LATER}))*)$"),
]


#: Names of fields with values of ``OPENAI_API_KEY`` or ``OPENAI_BASE_URL``; not a setting. Both
#: variables may be meant for other programs.
Inherited = frozenset[str]


def mask(name: str, value: object) -> object:
    """Return the value of a field without secrets."""
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
    """A table of the configuration file. Its ``repr`` masks secrets."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(name, mask(name, getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"{type(self).__name__}({inside})"


class StoreSettings(_Section, frozen=True, kw_only=True):
    """The store. An empty ``uri`` means the file in the user's data folder."""

    uri: str = ""
    """Address of the store: `sqlite:///FILE`, `mongodb://…` or `mongodb+srv://…`.

    `sqlite:///data/memory.db` is relative, `sqlite:////srv/memory.db` absolute. Empty: a SQLite
    file in the user's data folder.
    """
    database: str = ""
    """MongoDB: name of the database. Empty: the one in the URI, otherwise `eden`."""
    read_only: bool = False
    """Reject all commands that write."""
    embedding_storage: Literal["array", "bindata"] = "array"
    """MongoDB: how vectors are stored. `bindata` needs a third of the space."""
    bindata_beside_platform: bool = False
    """Allow `bindata` even if the platform, which cannot read it, uses the database."""
    other_model_beside_platform: bool = False
    """Allow vectors of a different model than the platform's."""
    connect_timeout_seconds: Seconds = 4.0
    """MongoDB: time limit for finding a server."""
    busy_timeout_seconds: Seconds = 10.0
    """SQLite: how long to wait for the lock of another process."""
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
    """The OpenAI-compatible endpoint for formation and consolidation, or a replay file."""

    provider: Literal["openai", "replay"] = "openai"
    """`openai`: any OpenAI-compatible endpoint. `replay`: recorded answers from a file."""
    inherited: Inherited = frozenset()
    base_url: str = ""
    """Address of the endpoint. Empty: `OPENAI_BASE_URL`, otherwise OpenAI's."""
    api_key: str = ""
    """API key of the endpoint. Empty: `OPENAI_API_KEY`."""
    fast_model: str = "gpt-5-mini"
    """Model for extraction, deduplication and recall."""
    slow_model: str = "gpt-5-mini"
    """Model for reflections and consolidation."""
    premium_model: str = "gpt-5.1"
    """Model for consolidations of premium users."""
    replay: str = ""
    """File with recorded answers, for `provider = "replay"`."""
    record: str = ""
    """File to append each answer of the endpoint to."""
    timeout_seconds: Seconds = 60.0
    """Time limit for one call."""
    retries: NotNegative = 4
    """Retries of a call after a temporary failure."""
    concurrency: Count = 8
    """Maximum number of concurrent calls."""
    temperature: Annotated[float, Meta(ge=0.0, le=2.0)] = 0.0
    """Sampling temperature. Omitted for models that reject it."""
    max_output_tokens: NotNegative = 0
    """Maximum length of one answer in tokens (0 = chosen by task)."""
    max_tokens: NotNegative = 0
    """Token budget of one run (0 = no limit)."""
    max_cost: Annotated[float, Meta(ge=0.0)] = 0.0
    """Cost limit of one run in US dollars, by `prices` (0 = no limit)."""
    prices: dict[str, tuple[float, float]] = {}
    """Model → [US dollars per million input tokens, per million output tokens]."""


class EmbeddingSettings(_Section, frozen=True, kw_only=True):
    """The embedding model."""

    provider: Literal["auto", "openai", "local", "none"] = "auto"
    """`auto`: the model or endpoint that these settings name, otherwise the local model.

    A store with vectors keeps their model. Without a local model, `OPENAI_API_KEY` is enough.
    """
    model: str = "text-embedding-3-small"
    """Model of the endpoint."""
    dimensions: NotNegative = 0
    """Length of the vectors (0 = the model's default)."""
    inherited: Inherited = frozenset()
    base_url: str = ""
    """Address of the endpoint. Empty: `OPENAI_BASE_URL`, otherwise OpenAI's."""
    api_key: str = ""
    """Key of the endpoint. Empty: `OPENAI_API_KEY`."""
    local_model: Literal["all-MiniLM-L6-v2", "multilingual-e5-small"] = "all-MiniLM-L6-v2"
    """Local model: English only, or about a hundred languages."""
    local_path: str = ""
    """Folder with a custom ONNX model and its `tokenizer.json`."""
    batch_size: Count = 100
    """Texts per request."""
    timeout_seconds: Seconds = 60.0
    """Time limit for one request."""
    retries: NotNegative = 4
    """Retries of a request after a temporary failure."""
    prices: dict[str, float] = msgspec.field(
        default_factory=lambda: {"text-embedding-3-small": 0.02}
    )
    """Model → US dollars per million tokens."""


class FormationSettings(_Section, frozen=True, kw_only=True):
    """The time and limits of formations."""

    former: Literal["auto", "platform", "edenmem"] = "auto"
    """Next to the platform: who forms its sessions. `auto`: the platform while it does."""
    extraction: Literal["two-step", "single"] = "two-step"
    """`two-step`: facts, then reflections. `single`: both in one call."""
    message_interval: Count = own_default("formation.message_interval")
    """New messages after which a formation is due."""
    token_interval: Count = own_default("formation.token_interval")
    """New weighted tokens after which a formation is due, even before `message_interval`."""
    min_messages: Count = own_default("formation.min_messages")
    """Minimum number of messages at the end of a session and in a cold run, if a person said
    something."""
    weight_user: Share = 1.0
    """Share of a user's tokens that counts toward the interval."""
    weight_tool: Share = 0.5
    """Share of a tool's tokens that counts toward the interval."""
    weight_agent: Share = 0.2
    """Share of the agent's tokens that counts toward the interval."""
    weight_other: Share = 0.5
    """Share of all other tokens that counts toward the interval."""
    characters_per_token: Annotated[float, Meta(gt=0)] = 4.5
    """Estimated characters per token."""
    max_messages: Count = 200
    """Maximum number of messages per range. A longer backlog takes several ranges."""
    max_characters: Count = 60_000
    """Maximum number of characters per range and prompt; a longer message takes several."""
    message_characters: Count = 8000
    """Length of the parts in which a long message is shown to the model."""
    tool_characters: Count = 1000
    """Maximum length of a tool's input and of its output in the prompt."""
    fact_words: Count = 30
    """Length of a fact in words, as asked of the model. Longer facts are verified, never cut."""
    reflection_words: Count = 35
    """Length of a reflection in words, as asked of the model. None is cut."""
    facts_per_scope: Count = 10
    """Maximum number of facts from a range of `base_characters`."""
    reflections_per_scope: Count = 8
    """Maximum number of reflections from a range of `base_characters`."""
    base_characters: Count = 3000
    """Length of a range for `facts_per_scope` and `reflections_per_scope`, in characters."""
    log_base: Annotated[float, Meta(gt=1)] = 4.0
    """Base of the logarithm by which both limits grow for longer ranges."""
    check: bool = True
    """Check what the model writes. Off: it is stored as written."""
    verify: Literal["doubtful", "all", "off"] = "doubtful"
    """Facts and reflections to show to the model once more, with their messages."""
    doubtful: Literal["mark", "hold", "drop"] = "mark"
    """What happens to items that are still in doubt: `mark` them as unconfirmed, `hold` them for
    review outside of memory, or `drop` them."""
    dedup: bool = True
    """Compare new facts with similar ones before storing them."""
    dedup_neighbors: Count = 5
    """Number of similar facts to compare each new fact with."""
    dedup_floor: Share = 0.7
    """Minimum semantic score, (1 + cosine) / 2, of a similar fact."""
    lease_seconds: Seconds = 300.0
    """How long a process may hold a range before another process takes over."""
    attempts: Count = 3
    """Attempts before a range is marked as failed."""
    backoff_seconds: Seconds = 60.0
    """Base of the exponential backoff: the first wait is twice this long, each next one doubles."""


class ReviewSettings(_Section, frozen=True, kw_only=True):
    """Items in doubt that were not reviewed. Cold runs apply this."""

    days: NotNegative = 0
    """Days after which an item in doubt no longer waits for review (0 = it waits)."""
    then: Literal["drop", "accept"] = "drop"
    """What happens to it: `drop`, or `accept` as unconfirmed. Items for everybody are dropped."""


class ConsolidationSettings(_Section, frozen=True, kw_only=True):
    """Consolidation of texts."""

    concurrency: Count = 4
    """Maximum number of concurrent consolidations."""
    conflict_retries: Count = 5
    """Retries after a conflicting write of another process."""


class ContextSettings(_Section, frozen=True, kw_only=True):
    """The memory context in an agent's prompt."""

    cache_seconds: NotNegative = 300
    """How long a context may be reused (0 = never)."""
    facts_limit: NotNegative = 40
    """Maximum number of recent facts."""
    facts_max_age_hours: NotNegative = 168
    """Maximum age of recent facts in hours."""
    reflections_limit: NotNegative = 20
    """Maximum number of pending reflections per scope."""
    recall: Literal["off", "heuristic", "llm", "always"] = "off"
    """When to search for facts related to the last message."""
    recall_top_k: Count = 5
    """Maximum number of recalled facts."""
    recall_messages: Count = 10
    """Number of messages that recall reads."""
    recall_timeout_seconds: Seconds = 2.0
    """Time limit for recall; if exceeded, recalled facts are omitted."""


class SearchSettings(_Section, frozen=True, kw_only=True):
    """Search of facts. Semantic scores are (1 + cosine) / 2."""

    recipe: RecipeName = "convex"
    """`convex`, `rrf`, `semantic` or `text`, with optional stages: `convex+rerank+mmr`.
    `convex+source` also searches the messages that facts were formed from."""
    top_k: Annotated[int, Meta(ge=1, le=100)] = 10
    """Maximum number of results."""
    semantic_weight: Share = 0.7
    """Weight of the semantic score in `convex`; the text score has the remaining weight."""
    min_score: Share | None = None
    """`convex`: minimum score of a result (0 = none). Unset: the value for the embedding model."""
    text_min_score: Share = 0.05
    """`text`: minimum score of a result (0 = none)."""
    source_weight: Share = 0.5
    """Stage `source`: weight of a word of the source messages, compared with a word of the fact."""
    depth: Count = 50
    """Maximum number of candidates per list."""
    semantic_floor: Share | None = None
    """Minimum semantic score (0 = none). Unset: the value for the embedding model."""
    text_floor: Annotated[float, Meta(ge=0)] = 1.5
    """Atlas: minimum text score, on Lucene's scale."""
    rrf_k: Count = 60
    """Constant of reciprocal rank fusion."""
    rrf_floor: Annotated[float, Meta(ge=0)] = 0.0
    """Minimum score of `rrf`."""
    unconfirmed_weight: Share = 0.8
    """Factor for the relevance of unconfirmed facts (1 = rank them like others)."""
    recency_weight: Share = 0.2
    """Weight of the recency score in the stage `recency`."""
    recency_days: Annotated[float, Meta(gt=0)] = 30.0
    """Age in days at which the recency score has dropped to 37 % (1/e)."""
    mmr_lambda: Share = 0.7
    """Stage `mmr`: 1 ranks by relevance alone, 0 by diversity alone."""
    rerank_path: str = ""
    """Folder with a cross-encoder (ONNX) and its `tokenizer.json`."""
    rerank_url: str = ""
    """Rerank endpoint, compatible with Cohere's and Jina's `/rerank`."""
    rerank_model: str = ""
    """Model of the rerank endpoint."""
    rerank_api_key: str = ""
    """Key of the rerank endpoint."""
    rerank_scores: Literal["auto", "logits", "probabilities"] = "auto"
    """Scale of the scores. `auto`: logits for ONNX models, probabilities for endpoints."""
    rerank_depth: Annotated[int, Meta(ge=1, le=1000)] = 50
    """Number of top candidates to rerank."""
    rerank_floor: Share = 0.0
    """Minimum probability after reranking."""
    rerank_timeout_seconds: Seconds = 20.0
    """Time limit for reranking in one search."""
    rerank_retries: NotNegative = 2
    """Retries of a rerank request after a temporary failure."""
    query_cache: NotNegative = 256
    """Maximum number of query vectors cached on disk (0 = none)."""
    scan_limit: Count = 50_000
    """MongoDB without search indexes: maximum number of facts scanned per search."""
    analyzer: str = "lucene.english"
    """Atlas: analyzer of the text index."""
    fuzzy_expansions: Count = 15
    """Atlas: maximum number of variants per word, with one edit each."""


class ScopeSettings(_Section, frozen=True, kw_only=True):
    """Defaults of one kind of scope. The policy of a scope overrides them."""

    consolidate_at: Count
    """Pending reflections after which a consolidation is due."""
    word_limit: Count
    """Maximum length of the text in words."""
    fact_buffer_max: NotNegative = 0
    """Maximum number of facts (0 = no limit)."""
    propagate: bool = False
    """Propagate important changes of the text to wider scopes."""
    review: Literal["auto", "nothing", "doubtful", "everything"] = "auto"
    """What waits for review before it is memory. `auto`: what is in doubt, if
    `formation.doubtful = "hold"`."""


def _scope(kind: str) -> ScopeSettings:
    return ScopeSettings(
        consolidate_at=own_default(f"scopes.{kind}.consolidate_at"),
        word_limit=own_default(f"scopes.{kind}.word_limit"),
    )


class ScopesSettings(_Section, frozen=True, kw_only=True):
    """The five kinds of scope."""

    session: ScopeSettings = _scope("session")
    user: ScopeSettings = _scope("user")
    group: ScopeSettings = ScopeSettings(consolidate_at=10, word_limit=500)
    shard: ScopeSettings = ScopeSettings(consolidate_at=16, word_limit=1000)
    agent: ScopeSettings = _scope("agent")


class ColdSettings(_Section, frozen=True, kw_only=True):
    """Runs over cold sessions."""

    quiet_minutes: Count = 10
    """Minutes without a message after which a session is cold."""
    concurrency: Count = 3
    """Maximum number of concurrent formations."""
    session_timeout_seconds: Seconds = 600.0
    """Time limit for one session."""
    grace_seconds: NotNegative = 10
    """Time for sessions in progress when a run stops early."""
    outage_after: Count = 3
    """Consecutive sessions that fail because of an outage before the run stops."""


class ToldSettings(_Section, frozen=True, kw_only=True):
    """Notes of which memory each reply was given: IDs and versions, no texts."""

    days: NotNegative = 90
    """Days to keep the notes (0 = note nothing). A cold run removes older ones."""


class BackupSettings(_Section, frozen=True, kw_only=True):
    """Scheduled backups."""

    folder: str = ""
    """Folder of `edenmem backup --keep N`. `edenmem doctor` checks the newest backup."""
    max_age_hours: Count = 36
    """Maximum age of the newest backup in hours, before `edenmem doctor` warns."""
    seal_file: str = ""
    """File for the seals of the log, on another machine or medium than the database."""


class ServerSettings(_Section, frozen=True, kw_only=True):
    """The HTTP server, ``edenmem serve``."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8377
    """Port to listen on (0 = any free port)."""
    agent: str = ""
    """Default agent of requests."""
    user: str = ""
    """Default user of requests without a token."""
    upstream_url: str = ""
    """Endpoint to forward chats to. Unset: `llm.base_url`, with its key."""
    upstream_api_key: str = ""
    """Key of the upstream endpoint. Unset: the caller's bearer token is forwarded."""
    upstream_timeout_seconds: Seconds = 600.0
    """Maximum time between two chunks from the upstream endpoint."""
    users: dict[str, str] = {}
    """Map of host user names to usernames or IDs in edenmem."""
    create_users: bool = False
    """Create unknown users."""
    user_headers: tuple[str, ...] = ()
    """Headers of front ends with the user of a chat: `openwebui`, `librechat`, or names. Ignored
    with the token of a user."""
    session_headers: tuple[str, ...] = ()
    """Headers of front ends with the session of a chat, as in `user_headers`."""
    store_chats: bool = True
    """Store the messages of chats."""
    waiting_folder: str = ""
    """Folder for chats that wait for the store. Unset: next to the SQLite file, or in the user's
    data folder."""
    utility_prompts: tuple[str, ...] = ()
    """More prompts of front ends that are not remembered: a beginning, then parts after `*`."""
    recall: Literal["off", "heuristic", "llm", "always"] = "always"
    """When to search for facts related to the last message."""
    memory_top_k: NotNegative = 5
    """Maximum number of facts retrieved per message. Requests can override it."""
    memory_score_threshold: Share = 0.0
    """Minimum score of retrieved facts. Requests can override it."""
    context_timeout_seconds: Seconds = 2.0
    """Time limit for the memory context; if exceeded, the chat is forwarded without it."""
    search_timeout_seconds: Seconds = 2.0
    """Time limit for the search; if exceeded, the chat is forwarded without found facts."""
    store_timeout_seconds: Seconds = 5.0
    """Time limit for storing messages; if exceeded, the chat is forwarded first."""
    form_after: Seconds = 60.0
    """Seconds without a message after which a chat is formed. Doubles with each pause of a chat, up
    to ten minutes."""
    formation_concurrency: Count = 2
    """Maximum number of concurrent formations in the background."""
    root_path: str = ""
    """Path prefix behind a reverse proxy that removes it, such as `/memory`."""
    shutdown_seconds: NotNegative = 30
    """Time for answers in progress when the server stops."""
    require_token: bool = False
    """Require a token from callers on this machine, too."""
    max_body_mb: Count = 32
    """Maximum size of a request body in megabytes."""
    max_requests: Count = 256
    """Maximum number of concurrent requests; further requests get a 503."""
    max_wait_seconds: Seconds = 1.0
    """Maximum expected wait of a request for others; further requests get a 503."""
    request_seconds: Seconds = 60.0
    """Time limit for receiving a body, answering a request to `/api`, or an MCP tool call."""
    daily_tokens: NotNegative = 0
    """Token limit per user and day (UTC) (0 = no limit)."""


class Settings(_Section, frozen=True, kw_only=True):
    """The complete configuration."""

    configured: frozenset[str] = frozenset()  # not a setting: keys with a configured value
    store: StoreSettings = StoreSettings()
    llm: LLMSettings = LLMSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    formation: FormationSettings = FormationSettings()
    review: ReviewSettings = ReviewSettings()
    consolidation: ConsolidationSettings = ConsolidationSettings()
    context: ContextSettings = ContextSettings()
    search: SearchSettings = SearchSettings()
    scopes: ScopesSettings = ScopesSettings()
    cold: ColdSettings = ColdSettings()
    told: ToldSettings = ToldSettings()
    backup: BackupSettings = BackupSettings()
    server: ServerSettings = ServerSettings()


#: Settings with masked values.
SECRETS = frozenset(
    {"llm.api_key", "embedding.api_key", "search.rerank_api_key", "server.upstream_api_key"}
)

#: Fields of sections that are not settings.
NOT_SETTINGS = frozenset({"inherited", "configured"})
