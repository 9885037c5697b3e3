"""The limit of a run on tokens and cost, which its models share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edenmem.errors import BudgetExceeded


class Charge:
    """The cost of one call, set while the call is in progress.

    ``lost`` is the number of failed attempts that may have been billed: an endpoint may finish a
    request after the client has disconnected. Each counts with the estimated cost.
    """

    def __init__(self, budget: Budget, tokens: int, cost: float) -> None:
        self.tokens = 0
        self.cost = 0.0
        self.lost = 0
        self._budget = budget
        self._expected = tokens, cost

    def lose(self) -> None:
        """Count a failed attempt with its estimated cost."""
        self.lost += 1
        tokens, cost = self._expected
        self._budget.tokens += tokens
        self._budget.cost += cost

    def check(self) -> None:
        """Check that the limit allows another attempt.

        Raises:
            BudgetExceeded: the limit is reached.
        """
        self._budget.check(*self._expected)


class Budget:
    """Tokens and US dollars spent, with their limits (0 = no limit).

    Calls in progress count with their estimates, so that concurrent calls stay within the limit.
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
        """Return whether there is a cost limit, which needs prices."""
        return self._max_cost > 0

    @contextmanager
    def call(self, *, tokens: int, cost: float) -> Iterator[Charge]:
        """Count a call with its estimated cost until it is finished.

        Raises:
            BudgetExceeded: the limit is reached.
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
        """Check that the limit is not reached, not counting the caller's own estimate.

        Raises:
            BudgetExceeded: the limit is reached.
        """
        open_tokens = self._open_tokens - own_tokens
        open_cost = self._open_cost - own_cost
        if self._max_tokens and self.tokens + open_tokens >= self._max_tokens:
            raise BudgetExceeded(
                f"token limit of the run reached: {self._max_tokens:,}"
                f" ({self.tokens:,} spent, about {open_tokens:,} in progress)",
                hint="raise llm.max_tokens, or continue with another run",
            )
        if self._max_cost and self.cost + open_cost >= self._max_cost:
            raise BudgetExceeded(
                f"cost limit of the run reached: ${self._max_cost:,.2f}"
                f" (${self.cost:,.4f} spent, about ${open_cost:,.4f} in progress)",
                hint="raise llm.max_cost, or continue with another run",
            )
