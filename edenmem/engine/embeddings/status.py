"""Count facts by the model of their vectors, and advise on mismatches of models and languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby, islice

import msgspec

from edenmem.engine.factory import has_endpoint, names_local_model
from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError, EmbeddingModelMismatch
from edenmem.models.backup import RecordKind
from edenmem.models.embeddings import ENGLISH_ONLY, LOCAL_MODELS, VectorSwitch, check_in_force
from edenmem.models.memory import Fact
from edenmem.models.scope import Scope
from edenmem.settings.installation import install_hint
from edenmem.settings.schema import Settings
from edenmem.store.protocol.search import VectorCount
from edenmem.store.protocol.store import Store

#: The advice on facts without vectors, if the configured model fits.
BACKFILL = "create the vectors with 'edenmem embed backfill'"


class VectorState(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of one agent, or of all ("") together, by their vectors.

    ``others`` maps other models to numbers of facts.
    """

    agent_id: str = ""
    facts: int = 0
    current: int = 0
    missing: int = 0
    wrong_length: int = 0
    others: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def replaced(self) -> int:
        """Return the number of facts with a vector that a backfill replaces."""
        return self.wrong_length + sum(self.others.values())

    @property
    def stale(self) -> int:
        """Return the number of facts without a current vector, which a backfill embeds."""
        return self.missing + self.replaced


class VectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """All facts by their vectors; ``dimensions`` is None if unknown before the first answer."""

    model: str
    dimensions: int | None
    total: VectorState
    agents: tuple[VectorState, ...]


def vector_status(
    store: Store, model: str, *, dimensions: int | None, agent_id: str | None = None
) -> VectorStatus:
    """Count facts by their vectors, compared with ``model``.

    Raises:
        StoreError: the database cannot be used.
    """
    counts = store.vectors.vector_counts(model, dimensions=dimensions, agent_id=agent_id)
    agents = tuple(
        _state(list(of_agent), model, agent)
        for agent, of_agent in groupby(counts, key=lambda count: count.agent_id)
    )
    return VectorStatus(
        model=model, dimensions=dimensions, total=_state(counts, model, ""), agents=agents
    )


def _state(counts: Iterable[VectorCount], model: str, agent_id: str) -> VectorState:
    facts: Counter[str] = Counter()
    wrong = 0
    for count in counts:
        facts[count.model] += count.facts
        wrong += count.wrong_length
    return VectorState(
        agent_id=agent_id,
        facts=facts.total(),
        current=facts[model] - wrong,
        missing=facts[""],
        wrong_length=wrong,
        others={name: facts[name] for name in facts if name not in ("", model)},
    )


# -- vectors of another model --------------------------------------------------------------------


def vector_advice(store: Store, settings: Settings, model: str, others: Iterable[str] = ()) -> str:
    """Return advice on facts without vectors of ``model``, some with those of ``others``.

    Raises:
        StoreError: the database cannot be used.
    """
    platform = store.switches.platform_model(model)
    names = sorted({*others, platform} - {"", model})
    listed = ", ".join(names)
    embedding = settings.embedding
    is_chosen = has_endpoint(embedding) or names_local_model(embedding)
    if names and names[0] in LOCAL_MODELS and not embedding.local_path and not platform:
        return (
            f"the facts have vectors of {listed}, but edenmem uses {model}: set"
            f" embedding.local_model = {LOCAL_MODELS[names[0]]!r} and embedding.provider = 'local',"
            " or let 'edenmem embed backfill' replace them"
        )
    if names and embedding.provider == "auto" and not is_chosen:
        is_set = embedding.model in {name.partition("@")[0] for name in names}
        key = "OPENAI_API_KEY" if is_set else f"embedding.model = {names[0]!r} and its API key"
        return (
            f"the facts have vectors of {listed}, but no API key is set, so edenmem uses {model}: "
            f"set {key}" + ("" if platform else ", or let 'edenmem embed backfill' replace them")
        )
    if platform:
        return f"the platform searches vectors of {platform}: set embedding.model = {platform!r}"
    return BACKFILL


def platform_advice(runtime: Runtime) -> str:
    """Return advice if the platform searches vectors of another model, else "".

    Raises:
        StoreError: the database cannot be used.
    """
    model = runtime.embedder.model if runtime.embedder is not None else ""
    is_misfit = bool(model and runtime.store.switches.platform_model(model))
    return vector_advice(runtime.store, runtime.settings, model) if is_misfit else ""


def explain_mismatch(store: Store, settings: Settings, error: EmbeddingModelMismatch) -> None:
    """Add a hint for these settings to an error raised by a store."""
    advice = vector_advice(store, settings, error.current, (error.stored,))
    if error.is_unexplained and advice != BACKFILL:
        error.hint = advice


def demand_own_database(store: Store, settings: Settings, model: str) -> None:
    """Check that the platform does not search vectors of another model than ``model``.

    Raises:
        ConflictError: the platform uses the database with another embedding model.
        StoreError: the database cannot be used.
    """
    platform = store.switches.platform_model(model)
    if platform:
        raise ConflictError(
            f"the platform uses this database with {platform!r}, and cannot search vectors of "
            f"{model!r}",
            hint=f"{vector_advice(store, settings, model)}; or, if the platform's memory is off, "
            "set store.other_model_beside_platform = true",
        )


def misfit_notice(store: Store, settings: Settings, model: str) -> str:
    """Return a notice on facts stored without vectors that the platform cannot search, or "".

    Raises:
        StoreError: the database cannot be used.
    """
    if not store.switches.platform_model(model):
        return ""
    advice = vector_advice(store, settings, model)
    return f"stored without a vector, so search finds it by words only; {advice}"


def demand_comparable(
    store: Store, settings: Settings, model: str, groups: Iterable[Sequence[Scope]]
) -> None:
    """Check that vectors of ``model`` are comparable with those stored in each group of scopes.

    The platform must be able to search them too.

    Raises:
        EmbeddingModelMismatch: the vectors are not comparable.
        StoreError: the database cannot be used.
    """
    platform = store.switches.platform_model(model)
    if platform:
        advice = vector_advice(store, settings, model)
        raise EmbeddingModelMismatch(stored=platform, current=model, hint=advice, everywhere=True)
    try:
        switch = store.switches.vector_switch()
        check_in_force(switch, model)
        if switch is not None and switch.is_staged(model):
            return
        for scopes in groups:
            stored = store.vectors.vector_model_names(scopes)
            if stored and model not in stored:
                raise EmbeddingModelMismatch(stored=stored[0], current=model)
    except EmbeddingModelMismatch as error:
        explain_mismatch(store, settings, error)
        raise


#: Number of sampled facts, and the minimum for a notice.
_SAMPLE = 200
_FEWEST = 5
#: Length of sentences that are rare in English without its common words.
_WORDS = 6


def multilingual_hint() -> str:
    """Return the hint that changes the model."""
    return (
        "change the model with 'edenmem embed use"
        " --set embedding.local_model=multilingual-e5-small'"
        f" ({install_hint('multilingual')})"
    )


def language_notice(store: Store, model: str) -> str:
    """Return a notice if most facts are in languages that ``model`` does not know, else "".

    Reads a sample of facts, and only for English-only models.

    Raises:
        StoreError: the database cannot be used.
    """
    if model not in ENGLISH_ONLY:
        return ""
    documents = islice(store.walk.documents((RecordKind.FACT,)), _SAMPLE)
    texts = [each.record.content for each in documents if isinstance(each.record, Fact)]
    others = sum(map(is_not_english, texts))
    if len(texts) < _FEWEST or others * 2 <= len(texts):
        return ""
    return f"{others} of {len(texts)} facts are not in English, but {model} knows only English"


def is_not_english(text: str) -> bool:
    """Return whether a text is in another language than English, by script and common words.

    Latin texts of few words count as English.
    """
    letters = [sign for sign in text if sign.isalpha()]
    if 2 * sum(sign < "\u0250" for sign in letters) < len(letters):
        return True
    from edenmem.acceptance.texts import (
        word_set,
        words_of,  # reads tables
    )

    words = set(words_of(text))
    return len(words) >= _WORDS and word_set("languages.english").isdisjoint(words)


def language_advice(runtime: Runtime) -> str:
    """Return the notice for the configured model and the command to fix it, or ""."""
    notice = language_notice(runtime.store, runtime.embedder.model) if runtime.embedder else ""
    return f"{notice}; {multilingual_hint()}" if notice else ""


def switch_status(store: Store) -> tuple[VectorSwitch, VectorStatus] | None:
    """Return the current switch, with counts of facts by vectors of the new model.

    Raises:
        StoreError: the database cannot be used.
    """
    switch = store.switches.vector_switch()
    if switch is None:
        return None
    return switch, vector_status(store, switch.model, dimensions=switch.dimensions)


def check_not_staged(store: Store, model: str) -> None:
    """Check that no switch to this model is being prepared: a backfill would only stage vectors.

    Raises:
        ConflictError: a switch to this model is being prepared.
    """
    under_way = store.switches.vector_switch()
    if under_way is not None and under_way.phase == "filling" and under_way.model == model:
        raise ConflictError(
            f"a switch to {model!r} is being prepared; {under_way.previous!r} is still in force",
            hint="continue the switch with 'edenmem embed use'",
        )
