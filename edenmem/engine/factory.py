"""Create the store and the models of the settings (the composition root).

Only this module names concrete stores and models outside their packages. Each is imported on
demand.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edenmem.embed import embedder_hint
from edenmem.errors import ConfigError
from edenmem.llm import LLM_HINT
from edenmem.rerank import RERANKER_HINT
from edenmem.settings.paths import sqlite_path, stage_folder, user_cache_folder, user_data_folder

if TYPE_CHECKING:
    from edenmem.embed.e5 import E5Files
    from edenmem.embed.model_files import ModelFiles
    from edenmem.embed.protocol import Embedder
    from edenmem.embed.query_file import QueryFile
    from edenmem.endpoint.budget import Budget
    from edenmem.engine.migration.source import FindAgent, Progress, StagedPlan
    from edenmem.llm.protocol import LLM
    from edenmem.models.v1 import V1Options
    from edenmem.rerank.protocol import Reranker
    from edenmem.settings.schema import EmbeddingSettings, Settings
    from edenmem.store.protocol.store import Store
    from edenmem.store.sqlite.v1.staging import SqliteV1Stage
    from edenmem.store.v1.source import V1Source

__all__ = [
    "LLM_HINT",
    "RERANKER_HINT",
    "EmbedderKind",
    "check_local_model",
    "default_sqlite_path",
    "embedder_hint",
    "embedder_kind",
    "find_local_model",
    "has_endpoint",
    "names_endpoint",
    "names_local_model",
    "open_budget",
    "open_embedder",
    "open_llm",
    "open_query_shelf",
    "open_reranker",
    "open_store",
    "open_v1_plan",
    "store_uri",
]


EmbedderKind = Literal["openai", "local", "none"]


def default_sqlite_path() -> Path:
    """Return the path of the default database."""
    return user_data_folder() / "edenmem.db"


def store_uri(settings: Settings) -> str:
    """Return ``store.uri``, or the URI of the default database."""
    return settings.store.uri or f"sqlite:///{default_sqlite_path()}"


def open_store(settings: Settings) -> Store:
    """Return the store of ``store.uri``, without connecting to it or creating it.

    Raises:
        ConfigError: the URI is invalid.
    """
    uri = store_uri(settings)
    path = sqlite_path(uri)
    if path is None:
        from edenmem.store.mongo import MongoStore

        return MongoStore(
            uri,
            settings.store,
            scan_limit=settings.search.scan_limit,
            fuzzy_expansions=settings.search.fuzzy_expansions,
        )
    from edenmem.store.sqlite import SqliteStore

    return SqliteStore(
        path,
        busy_timeout=settings.store.busy_timeout_seconds,
        read_only=settings.store.read_only,
    )


def open_budget(settings: Settings) -> Budget:
    """Return the token and cost limit of one run, to be shared by its models."""
    from edenmem.endpoint.budget import Budget

    return Budget(max_tokens=settings.llm.max_tokens, max_cost=settings.llm.max_cost)


def has_llm(settings: Settings) -> bool:
    """Return whether a language model is configured."""
    llm = settings.llm
    return llm.provider == "replay" or bool(llm.api_key or llm.base_url)


def open_llm(settings: Settings, *, budget: Budget | None = None) -> LLM | None:
    """Return the configured language model, or None without a key and URL.

    Without ``budget``, the model has a separate one.

    Raises:
        ConfigError: ``llm.provider`` is "replay", and ``llm.replay`` is unset or ``llm.record``
            is set.
    """
    llm = settings.llm
    if llm.provider == "replay":
        if not llm.replay:
            raise ConfigError(
                'llm.provider is "replay", but llm.replay is not set',
                hint="set llm.replay to a file of recorded answers",
            )
        if llm.record:
            raise ConfigError(
                'llm.record cannot be combined with llm.provider = "replay"',
                hint='unset llm.record, or set llm.provider = "openai"',
            )
        from edenmem.llm.replay import ReplayLLM

        return ReplayLLM(Path(llm.replay))
    if not has_llm(settings):
        return None
    from edenmem.llm.openai_compat import OpenAILLM

    endpoint = OpenAILLM(llm, budget=budget)
    if not llm.record:
        return endpoint
    from edenmem.llm.replay import RecordingLLM

    return RecordingLLM(endpoint, Path(llm.record))


def open_embedder(settings: Settings, *, budget: Budget | None = None) -> Embedder | None:
    """Return the configured embedding model, or None; see `embedder_hint`.

    Calls are charged to ``budget``. "auto" selects the local model or endpoint that the settings
    name, else the default local model if installed, else an endpoint with a key;
    `edenmem.engine.embeddings.choice` also considers the store.

    Raises:
        ConfigError: the folder does not exist.
        ProviderMisconfigured: the local model from the settings is not installed.
    """
    embedding = settings.embedding
    kind = embedder_kind(embedding)
    if kind == "openai":
        from edenmem.embed.openai_compat import OpenAIEmbedder

        return OpenAIEmbedder(embedding, budget=budget)
    if kind == "local":
        files = find_local_model(embedding)
        if files is not None:
            from edenmem.embed.local import LocalEmbedder

            return LocalEmbedder(files, cache=user_cache_folder() / "models")
    return None


def embedder_kind(embedding: EmbeddingSettings) -> EmbedderKind:
    """Return the kind of provider that the settings select without a store."""
    if embedding.provider == "openai":
        return "openai" if has_endpoint(embedding) else "none"
    if embedding.provider != "auto":
        return embedding.provider
    if names_local_model(embedding):
        return "local"
    if names_endpoint(embedding):
        return "openai"
    has_only_endpoint = has_endpoint(embedding) and find_local_model(embedding) is None
    return "openai" if has_only_endpoint else "local"


def has_endpoint(embedding: EmbeddingSettings) -> bool:
    """Return whether a key or address is known, from the settings or the environment."""
    return bool(embedding.api_key or embedding.base_url)


def names_endpoint(embedding: EmbeddingSettings) -> bool:
    """Return whether the settings of embeddings name an endpoint.

    ``OPENAI_API_KEY`` and ``OPENAI_BASE_URL`` do not: they are often set for other programs.
    """
    given = {name for name in ("api_key", "base_url") if getattr(embedding, name)}
    is_own = not given <= embedding.inherited or embedding.model != type(embedding)().model
    return bool(given) and is_own


def names_local_model(embedding: EmbeddingSettings) -> bool:
    """Return whether the settings name a local model or folder other than the default."""
    return bool(embedding.local_path) or embedding.local_model != type(embedding)().local_model


def find_local_model(embedding: EmbeddingSettings) -> ModelFiles | E5Files | None:
    """Return the files of the local model; None if the extra ``local`` is not installed.

    Raises:
        ConfigError: the folder of the settings does not exist.
        ProviderMisconfigured: the local model of the settings is not installed.
    """
    from edenmem.embed.model_files import find_bundled_model, folder_model
    from edenmem.onnx import has_runtime

    if embedding.local_model == "multilingual-e5-small" and not embedding.local_path:
        from edenmem.embed.e5 import find_e5

        return find_e5()
    if not has_runtime():
        return None
    if embedding.local_path:
        return folder_model(Path(embedding.local_path))
    return find_bundled_model()


def check_local_model(settings: Settings) -> bool:
    """Verify the files of the local embedding model; False if the settings use none.

    Raises:
        ConfigError: a folder or file from the settings does not exist.
        ProviderMisconfigured: a file is not installed, or has the wrong content.
    """
    if embedder_kind(settings.embedding) != "local":
        return False
    files = find_local_model(settings.embedding)
    if files is not None:
        files.check()
    return files is not None


def open_reranker(settings: Settings, *, budget: Budget | None = None) -> Reranker | None:
    """Return the configured reranker, or None; see `RERANKER_HINT`.

    A folder wins over an endpoint. Neither is checked before the first use, since most searches
    do not rerank. Tokens of an endpoint are charged to ``budget``.
    """
    search = settings.search
    if search.rerank_path:
        from edenmem.onnx import ModelFolder
        from edenmem.rerank.local import LocalReranker

        return LocalReranker(
            ModelFolder(Path(search.rerank_path), setting="search.rerank_path"),
            name=search.rerank_model,
            kind="logits" if search.rerank_scores == "auto" else search.rerank_scores,
        )
    if search.rerank_url:
        from edenmem.rerank.endpoint import EndpointReranker

        return EndpointReranker(search, budget=budget)
    return None


def open_v1_plan(
    settings: Settings,
    location: str | None,
    options: V1Options,
    *,
    store: Store | None = None,
    find_agent: FindAgent | None = None,
    progress: Progress = lambda done, total: None,
) -> StagedPlan:
    """Read memory of v1, and plan its migration. Blocks.

    Writes only a temporary file, which is deleted with the plan, unless its run is interrupted:
    the next plan of the same source and options reuses the file.

    Args:
        settings: Location of the configured store, and connection options for MongoDB.
        location: MongoDB URI, file or folder (None: the configured MongoDB).
        options: Options of the migration.
        store: The target store, whose users match accounts of one person.
        find_agent: Finds agents of the target store, for names unknown to the source.
        progress: Called with the number of documents read, and their total.

    Raises:
        UsageError: there is no location, and the configured store is not MongoDB.
        NotFoundError: the file, folder, database or an agent does not exist.
        AmbiguousReference: several agents have the same name.
        InputError: the source holds no memory of v1, or that of several databases.
        StoreError: the database is unreachable, or the disk is full.
    """
    from edenmem.engine.migration.source import open_plan
    from edenmem.store.v1.source import open_source

    source = open_source(location, settings.store)
    return open_plan(
        source,
        _open_stage(source, options, store),
        options,
        users=store.host.users() if store is not None else (),
        find_agent=find_agent,
        progress=progress,
    )


#: Age in days after which the stage of an interrupted run is removed.
_OLD_STAGE = 7


def _open_stage(source: V1Source, options: V1Options, store: Store | None) -> SqliteV1Stage:
    """Open the stage of an interrupted run of the same source and options, or an empty one.

    With a store, the stage is a file until its run is finished.
    """
    import msgspec

    from edenmem.engine.migration.source import is_of
    from edenmem.models.ids import derived_id
    from edenmem.store.sqlite.v1.staging import SqliteV1Stage

    if store is None:
        return SqliteV1Stage()
    folder = stage_folder()
    for file in folder.glob("*.stage"):
        if time.time() - file.stat().st_mtime > _OLD_STAGE * 86_400:
            file.unlink(missing_ok=True)
    given = msgspec.json.encode(options).decode()
    key = derived_id("stage", store.database.info().location, source.location, given)
    stage = SqliteV1Stage(folder / f"{key}.stage")
    if stage.note and not is_of(stage, source, store.migrations.migration_runs()):
        stage.close()
        stage = SqliteV1Stage(folder / f"{key}.stage")
    return stage


def open_query_shelf(settings: Settings) -> QueryFile | None:
    """Return the disk cache of query vectors, or None.

    Loading a local model takes longer than a command. ``search.query_cache = 0`` disables the
    cache.
    """
    embedding = settings.embedding
    if embedder_kind(embedding) == "none" or not settings.search.query_cache:
        return None
    from edenmem.embed.query_file import QueryFile

    return QueryFile(
        user_cache_folder() / "queries.db",
        size=settings.search.query_cache,
        space=f"{embedding.base_url} {embedding.dimensions}",
    )
