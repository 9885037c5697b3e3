"""The limit on tokens and money of one run, shared by every call in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edenmem.errors import BudgetExceeded


class Charge:
    """What one call turned out to cost; set while the call is open."""

    def __init__(self) -> None:
        self.tokens = 0
        self.cost = 0.0


class Budget:
    """Tokens and US dollars spent, against limits; 0 is no limit.

    A call that is under way counts with its estimate, so that many at once do not all slip in
    under a limit that one of them would reach.
    """

    def __init__(self, *, max_tokens: int = 0, max_cost: float = 0.0) -> None:
        self._max_tokens = max_tokens
        self._max_cost = max_cost
        self._open_tokens = 0
        self._open_cost = 0.0
        self.tokens = 0
        self.cost = 0.0

    @property
    def limits_cost(self) -> bool:
        """Whether money is limited, so that prices must be known."""
        return self._max_cost > 0

    @contextmanager
    def call(self, *, tokens: int, cost: float) -> Iterator[Charge]:
        """A place for one call, which is expected to cost this much.

        Raises:
            BudgetExceeded: the limit is reached by what is spent and what is under way.
        """
        self._check()
        charge = Charge()
        self._open_tokens += tokens
        self._open_cost += cost
        try:
            yield charge
        finally:
            self._open_tokens -= tokens
            self._open_cost -= cost
            self.tokens += charge.tokens
            self.cost += charge.cost

    def _check(self) -> None:
        if self._max_tokens and self.tokens + self._open_tokens >= self._max_tokens:
            raise BudgetExceeded(
                f"the run's limit of {self._max_tokens:,} tokens is reached"
                f" ({self.tokens:,} spent, about {self._open_tokens:,} under way)",
                hint="llm.max_tokens sets the limit; what is left can be done by another run",
            )
        if self._max_cost and self.cost + self._open_cost >= self._max_cost:
            raise BudgetExceeded(
                f"the run's limit of ${self._max_cost:,.2f} is reached"
                f" (${self.cost:,.4f} spent, about ${self._open_cost:,.4f} under way)",
                hint="llm.max_cost sets the limit; what is left can be done by another run",
            )
