"""The limit on tokens and money of one run, shared by every call in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edenmem.errors import BudgetExceeded

#: Of text in most languages and tokenizers; of JSON and of scripts without spaces a little less.
_BYTES_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has."""
    return len(text.encode("utf-8", "replace")) // _BYTES_PER_TOKEN


class Charge:
    """What one call turned out to cost; set while the call is open.

    ``lost`` counts the tries that nothing came of and that may have been paid all the same: the
    endpoint goes on with what it was asked after the asker has gone. Each counts as expected.
    """

    def __init__(self, budget: Budget, tokens: int, cost: float) -> None:
        self.tokens = 0
        self.cost = 0.0
        self.lost = 0
        self._budget = budget
        self._expected = tokens, cost

    def lose(self) -> None:
        """Count a try as spent."""
        self.lost += 1
        tokens, cost = self._expected
        self._budget.tokens += tokens
        self._budget.cost += cost

    def check(self) -> None:
        """Raise if another try would go beyond the limit.

        Raises:
            BudgetExceeded: see `Budget.call`.
        """
        self._budget.check(*self._expected)


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
        self.check()
        charge = Charge(self, tokens, cost)
        self._open_tokens += tokens
        self._open_cost += cost
        try:
            yield charge
        finally:
            self._open_tokens -= tokens
            self._open_cost -= cost
            self.tokens += charge.tokens
            self.cost += charge.cost

    def check(self, own_tokens: int = 0, own_cost: float = 0.0) -> None:
        """Raise if the limit is reached by what is spent and what is under way but one's own.

        Raises:
            BudgetExceeded: it is.
        """
        open_tokens = self._open_tokens - own_tokens
        open_cost = self._open_cost - own_cost
        if self._max_tokens and self.tokens + open_tokens >= self._max_tokens:
            raise BudgetExceeded(
                f"the run's limit of {self._max_tokens:,} tokens is reached"
                f" ({self.tokens:,} spent, about {open_tokens:,} under way)",
                hint="llm.max_tokens sets the limit; what is left can be done by another run",
            )
        if self._max_cost and self.cost + open_cost >= self._max_cost:
            raise BudgetExceeded(
                f"the run's limit of ${self._max_cost:,.2f} is reached"
                f" (${self.cost:,.4f} spent, about ${open_cost:,.4f} under way)",
                hint="llm.max_cost sets the limit; what is left can be done by another run",
            )
