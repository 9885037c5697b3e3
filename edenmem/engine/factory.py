"""The composition root: settings become a store, a language model and an embedding model.

The only module outside their packages that names concrete ones, each imported when it is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edenmem.embed import EMBEDDER_HINT
from edenmem.errors import ConfigError
from edenmem.rerank import RERANKER_HINT
from edenmem.settings.paths import sqlite_path, user_cache_folder, user_data_folder

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edenmem.embed.e5 import E5Files
    from edenmem.embed.model_files import ModelFiles
    from edenmem.embed.protocol import Embedder
    from edenmem.embed.query_file import QueryFile
    from edenmem.endpoint.budget import Budget
    from edenmem.engine.migration.source import FindAgent, Progress, StagedPlan
    from edenmem.llm.protocol import LLM
    from edenmem.models.host import User
    from edenmem.models.v1 import V1Options
    from edenmem.rerank.protocol import Reranker
    from edenmem.settings.schema import EmbeddingSettings, Settings
    from edenmem.store.protocol.store import Store

__all__ = [
    "EMBEDDER_HINT",
    "LLM_HINT",
    "RERANKER_HINT",
    "check_local_model",
    "default_sqlite_path",
    "open_budget",
    "open_embedder",
    "open_llm",
    "open_query_shelf",
    "open_reranker",
    "open_store",
    "open_v1_plan",
    "store_uri",
]

#: What to do when a language model is needed and `open_llm` gave None.
LLM_HINT = "set OPENAI_API_KEY, or llm.base_url to an OpenAI-compatible endpoint (Ollama, vLLM, …)"


def default_sqlite_path() -> Path:
    """The database of a user who named none."""
    return user_data_folder() / "edenmem.db"


def store_uri(settings: Settings) -> str:
    """The URI in force: ``store.uri``, or that of the default database."""
    return settings.store.uri or f"sqlite:///{default_sqlite_path()}"


def open_store(settings: Settings) -> Store:
    """The store that ``store.uri`` names. Nothing is connected or created yet.

    Raises:
        ConfigError: the URI names no store that edenmem knows.
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
    """The limit on tokens and money of one run, to be shared by all that it pays for."""
    from edenmem.endpoint.budget import Budget

    return Budget(max_tokens=settings.llm.max_tokens, max_cost=settings.llm.max_cost)


def has_llm(settings: Settings) -> bool:
    """Return whether a language model is configured."""
    llm = settings.llm
    return llm.provider == "replay" or bool(llm.api_key or llm.base_url)


def open_llm(settings: Settings, *, budget: Budget | None = None) -> LLM | None:
    """The configured language model, or None if there is neither a key nor a URL. Without a
    ``budget`` it has one of its own.

    Raises:
        ConfigError: ``llm.provider`` is "replay" and no file is named, or is recorded again.
    """
    llm = settings.llm
    if llm.provider == "replay":
        if not llm.replay:
            raise ConfigError(
                'llm.provider is "replay" and llm.replay names no file',
                hint="set llm.replay to a file of scripted answers",
            )
        if llm.record:
            raise ConfigError(
                "llm.record keeps what a real endpoint answered; scripted answers are kept already",
                hint='leave out llm.record, or set llm.provider = "openai"',
            )
        from edenmem.llm.replay import ReplayLLM

        return ReplayLLM(Path(llm.replay))
    if not has_llm(settings):
        return None
    from edenmem.llm.openai_compat import OpenAILLM

    endpoint = OpenAILLM(llm, budget=budget)
    if not llm.record:
        return endpoint
    from edenmem.llm.recording import RecordingLLM

    return RecordingLLM(endpoint, Path(llm.record))


def open_embedder(settings: Settings, *, budget: Budget | None = None) -> Embedder | None:
    """The configured embedding model, or None if there is none; `EMBEDDER_HINT` says what to add.
    Its calls are charged to the ``budget`` of the run, if there is one.

    "auto" is a local model or folder that was named, else an endpoint if there is a key or a URL,
    else the default local model if it is installed.

    Raises:
        ConfigError: there is no such folder.
        ProviderMisconfigured: the local model that was named is not installed.
    """
    embedding = settings.embedding
    kind = _embedder_kind(embedding)
    if kind == "openai":
        from edenmem.embed.openai_compat import OpenAIEmbedder

        return OpenAIEmbedder(embedding, budget=budget)
    if kind == "local":
        files = _local_model(embedding)
        if files is not None:
            from edenmem.embed.local import LocalEmbedder

            return LocalEmbedder(files)
    return None


def _embedder_kind(embedding: EmbeddingSettings) -> Literal["openai", "local", "none"]:
    has_endpoint = bool(embedding.api_key or embedding.base_url)
    if embedding.provider == "openai":
        return "openai" if has_endpoint else "none"
    if embedding.provider != "auto":
        return embedding.provider
    # What was named is taken before an endpoint; the default model was named by nobody.
    default = type(embedding)().local_model
    is_named = bool(embedding.local_path) or embedding.local_model != default
    return "openai" if has_endpoint and not is_named else "local"


def _local_model(embedding: EmbeddingSettings) -> ModelFiles | E5Files | None:
    """The files of the local model; None if the extra ``local`` is not installed."""
    from edenmem.embed.model_files import find_bundled_model, folder_model
    from edenmem.onnx.folder import has_runtime

    if embedding.local_model == "multilingual-e5-small" and not embedding.local_path:
        from edenmem.embed.e5 import find_e5

        return find_e5()
    if not has_runtime():
        return None
    if embedding.local_path:
        return folder_model(Path(embedding.local_path))
    return find_bundled_model()


def check_local_model(settings: Settings) -> bool:
    """Read the files of the local embedding model, if the settings lead to one; whether they do.

    Raises:
        ConfigError: a folder or file that was named is not there.
        ProviderMisconfigured: a file is not the one that edenmem knows, or is not installed.
    """
    if _embedder_kind(settings.embedding) != "local":
        return False
    files = _local_model(settings.embedding)
    if files is not None:
        files.check()
    return files is not None


def open_reranker(settings: Settings, *, budget: Budget | None = None) -> Reranker | None:
    """The configured reranker, or None if there is none; `RERANKER_HINT` says what to set. A
    folder that was named is taken before an endpoint. Neither is looked at before the first use,
    since most searches do without.

    Calls of an endpoint are charged with their tokens to the ``budget`` of the run, if there is
    one.
    """
    search = settings.search
    if search.rerank_path:
        from edenmem.onnx.folder import ModelFolder
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
    folder: Path | None = None,
    users: Iterable[User] = (),
    find_agent: FindAgent | None = None,
    progress: Progress | None = None,
) -> StagedPlan:
    """Read memory of v1 and say what becomes of it. Blocks; nothing is written but a temporary
    file, which goes with the plan.

    Args:
        settings: Where the configured store is, and how a MongoDB is reached.
        location: A MongoDB's URI, a file or a folder; None: the MongoDB that is the store.
        options: What to make of it.
        folder: Where the temporary file is; by default where the system keeps such files.
        users: The users of the store that is written to, to tell accounts of one person.
        find_agent: Finds agents of that store, for names that the source does not know.
        progress: Told now and then how many documents were read, and how many there are.

    Raises:
        UsageError: nothing was named, and the configured store is no MongoDB.
        NotFoundError: there is no such file, folder or database, or no agent of a name.
        AmbiguousReference: there are several agents of a name.
        InputError: there is nothing of v1 in it.
        AmbiguousInput: there are several databases, or several files of one collection.
        StoreError: the database cannot be reached, or there is no room for the file.
    """
    from edenmem.engine.migration.source import open_plan
    from edenmem.store.sqlite.v1.staging import SqliteV1Stage
    from edenmem.store.v1.opening import open_source

    source = open_source(location, settings.store, database=options.database, files=options.files)
    return open_plan(
        source,
        SqliteV1Stage(folder),
        options,
        users=users,
        find_agent=find_agent,
        progress=progress,
    )


def open_query_shelf(settings: Settings) -> QueryFile | None:
    """Where vectors of queries outlast the process, or None: a model of this machine is asked
    again as quickly, and ``search.query_cache = 0`` keeps none."""
    embedding = settings.embedding
    if _embedder_kind(embedding) != "openai" or not settings.search.query_cache:
        return None
    from edenmem.embed.query_file import QueryFile

    return QueryFile(
        user_cache_folder() / "queries.db",
        size=settings.search.query_cache,
        space=f"{embedding.base_url} {embedding.dimensions}",
    )
