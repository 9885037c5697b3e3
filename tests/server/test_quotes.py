"""Quotes over REST: only for those who may read the source message."""

from __future__ import annotations

import pytest

from edenmem.models.ids import new_id
from edenmem.models.scope import Scope
from edenmem.server.access import Caller
from edenmem.server.documents import fact_document
from tests.support.builders import make_fact

AGENT, LENA = new_id(), new_id()


@pytest.mark.parametrize(
    ("scope", "user_id", "shown"),
    [
        (Scope.agent(AGENT), None, "so says Tomas"),
        (Scope.agent(AGENT), LENA, ""),
        (Scope.shard(AGENT, "lore"), LENA, ""),
        (Scope.user(AGENT, LENA), LENA, "so says Tomas"),
    ],
)
def test_a_users_token_sees_quotes_of_its_user_only(
    scope: Scope, user_id: str | None, shown: str
) -> None:
    fact = make_fact(scope, quote="so says Tomas", unconfirmed="has no quote")
    caller = Caller(name="reader", agents=None, user_id=user_id, accounts=frozenset(), write=False)
    document = fact_document(fact, caller)
    assert (document.quote, document.unconfirmed) == (shown, "has no quote")
