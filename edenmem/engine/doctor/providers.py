"""Open the configured models, and test them on request; a misconfigured model is a finding."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from edenmem.engine.doctor.report import Advice, CheckFinding, Remark, State
from edenmem.engine.factory import LLM_HINT, embedder_hint, open_embedder, open_llm
from edenmem.engine.runtime.llm_session import ping
from edenmem.errors import EdenmemError
from edenmem.llm import NO_LLM
from edenmem.models.integrity import Finding
from edenmem.settings.schema import Settings

if TYPE_CHECKING:
    from edenmem.embed.protocol import Embedder
    from edenmem.llm.protocol import LLM


_CHECK = "providers"
_NO_LLM = Advice("Formation and consolidation need a language model.", LLM_HINT)


class Providers:
    """The embedding model and the language model, with one event loop for both."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._faults: list[Finding] = []
        self._runner: asyncio.Runner | None = None
        self.embedder: Embedder | None = None
        self.llm: LLM | None = None
        self.dimensions: int | None = None

    def __enter__(self) -> Providers:
        self._runner = asyncio.Runner()
        try:
            self.embedder = open_embedder(self._settings)
            self.dimensions = None if self.embedder is None else self.embedder.dimensions
        except EdenmemError as error:
            self._fault("embedding", error)
        try:
            self.llm = open_llm(self._settings)
        except EdenmemError as error:
            self._fault("llm", error)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is None:
            return
        for provider in (self.embedder, self.llm):
            if provider is not None:
                self._runner.run(provider.close())
        self._runner.close()

    def _fault(self, what: str, error: EdenmemError) -> None:
        self._faults.append(_failure(what, error))

    def look(self, *, online: bool) -> Iterator[CheckFinding | Remark]:
        """Yield the configured models and, if ``online``, whether they respond."""
        for fault in self._faults:
            yield CheckFinding(_CHECK, fault, State.PROBLEM)
        names = []
        faulty = {fault.target_id for fault in self._faults}
        if self.embedder is not None:
            names.append(self.embedder.model)
        elif "embedding" not in faulty:
            finding = _finding("embedding", "no embedding model")
            advice = Advice("Search by meaning needs an embedding model.", embedder_hint())
            yield CheckFinding(_CHECK, finding, State.NOTE, advice)
        if self.llm is not None:
            names.append(self.llm.description)
        elif "llm" not in faulty:
            finding = _finding("llm", NO_LLM)
            yield CheckFinding(_CHECK, finding, State.NOTE, _NO_LLM)
        if not online:
            yield from self._name_untested(names)
            return
        failures = list(self._test())
        yield from failures
        if self.llm is not None and self.llm.is_scripted:
            yield Remark(_CHECK, f"{self.llm.description} was not tested")
            names.pop()
        if names and not failures:
            yield Remark(_CHECK, f"{', '.join(names)} {'respond' if names[1:] else 'responds'}")

    def _name_untested(self, names: Sequence[str]) -> Iterator[Remark]:
        """Yield the models, of which only a script needs no test."""
        called = list(names)
        script = called.pop() if self.llm is not None and self.llm.is_scripted else ""
        if called:
            these = "them" if called[1:] else "it"
            untested = f"{', '.join(called)} not called; --online calls {these}"
            text = f"{untested}; {script}" if script else untested
            yield Remark(_CHECK, text, state=State.UNTESTED)
        elif script:
            yield Remark(_CHECK, script)

    def _test(self) -> Iterator[CheckFinding]:
        assert self._runner is not None
        if self.embedder is not None:
            try:
                self._runner.run(self.embedder.embed(["Is anybody there?"], role="query"))
            except EdenmemError as error:
                yield CheckFinding(_CHECK, _failure("embedding", error), State.PROBLEM)
        if self.llm is not None and not self.llm.is_scripted:
            for model in dict.fromkeys(
                (self._settings.llm.fast_model, self._settings.llm.slow_model)
            ):
                try:
                    self._runner.run(ping(self.llm, model))
                except EdenmemError as error:
                    yield CheckFinding(_CHECK, _failure(model, error), State.PROBLEM)

    def vectors(self, texts: Sequence[str]) -> Sequence[bytes | None]:
        """Return the vectors of texts; None for each without an embedding model.

        Raises:
            ProviderError: the model is unavailable.
        """
        if self.embedder is None or not texts:
            return [None] * len(texts)
        assert self._runner is not None
        return self._runner.run(self.embedder.embed(list(texts), role="passage")).vectors


def _failure(what: str, error: EdenmemError) -> Finding:
    hint = f"; {error.hint}" if error.hint else ""
    return _finding(what, f"{error.message}{hint}")


def _finding(what: str, detail: str) -> Finding:
    return Finding(target_type="provider", target_id=what, detail=detail)
