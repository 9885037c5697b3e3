"""Tokens for the server: create, check, rotate and revoke them. All functions block."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from edenmem.engine.runtime.runtime import Runtime
from edenmem.errors import ConflictError, NotFoundError, StoreError, UsageError
from edenmem.models.access import AccessToken, token_id
from edenmem.models.forgetting import Subject
from edenmem.models.ids import derived_id, new_id
from edenmem.models.records import AuditEntry
from edenmem.store.protocol.host import Tokens as TokenStore

#: Prefix of all tokens, for secret scanners; the ID of the token's name follows.
PREFIX = "edm_"
_FORM = re.compile(r"edm_([0-9a-f]{24})_[0-9a-f]{64}\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")

#: Resolution of the last use, so that few requests cost a write.
_USE_INTERVAL = timedelta(hours=1)

#: Digest to compare for an unknown token.
_NO_DIGEST = "0" * 64


class TokenKeeper:
    """Creates, checks, rotates and revokes tokens."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._store = runtime.store.tokens

    def create(
        self,
        name: str,
        *,
        agents: Sequence[str],
        user_id: str | None = None,
        can_write: bool = False,
        expires_at: datetime | None = None,
    ) -> tuple[AccessToken, str]:
        """Store a new token, and return it with its secret, which is not stored.

        Args:
            name: Name of the caller in history and audit.
            agents: IDs of the agents within reach.
            user_id: The only user within reach (None: all users of the agents).
            can_write: Whether the token may change memory.
            expires_at: Time of expiry (None: never).

        Raises:
            UsageError: invalid name, no agents, or a time of expiry in the past.
            ConflictError: the name is taken.
        """
        now = self._runtime.clock()
        if not _NAME.match(name):
            raise UsageError(
                f"invalid token name: {name!r}",
                hint="use up to 64 letters, digits, '.', '_' and '-', starting with a letter or"
                " digit",
            )
        if not agents:
            raise UsageError("a token needs an agent", hint="add --agent")
        if expires_at is not None and expires_at <= now:
            raise UsageError("the time of expiry is in the past")
        id = token_id(name)
        secret = _make_secret(id)
        token = AccessToken(
            id=id,
            name=name,
            digest=_digest(secret),
            agents=tuple(dict.fromkeys(agents)),
            user_id=user_id,
            can_write=can_write,
            created_at=now,
            created_by=self._runtime.actor.name,
            expires_at=expires_at,
        )
        if not self._store.add(token, self._entry(token, "add_token", new_id())):
            raise ConflictError(
                f"the token name is taken: {name!r}", hint=f"edenmem token rotate {name}"
            )
        return token, secret

    def list_all(self) -> list[AccessToken]:
        """Return all tokens by name, including expired tokens."""
        return self._store.tokens()

    def find(self, name: str) -> AccessToken:
        """Return the token with a name.

        Raises:
            NotFoundError: no such token.
        """
        token = self._store.token(token_id(name))
        if token is None:
            raise NotFoundError(f"there is no token {name!r}", hint="see 'edenmem token list'")
        return token

    def revoke(self, name: str) -> AccessToken:
        """Revoke a token.

        Raises:
            NotFoundError: no such token.
        """
        token = self.find(name)
        made = derived_id("remove_token", token.id, token.created_at.isoformat())
        self._store.remove(token.id, self._entry(token, "remove_token", made))
        return token

    def rotate(self, name: str) -> tuple[AccessToken, str]:
        """Replace the secret of a token, which ends the old one, and return both.

        Raises:
            NotFoundError: no such token.
            UsageError: the token has expired.
            ConflictError: the token was rotated or revoked meanwhile.
        """
        token, now = self.find(name), self._runtime.clock()
        if token.has_expired(now):
            raise UsageError(
                f"the token has expired: {name!r}",
                hint=f"'edenmem token revoke {name}', then create it again",
            )
        secret = _make_secret(token.id)
        renewed = msgspec.structs.replace(
            token,
            digest=_digest(secret),
            created_at=now,
            created_by=self._runtime.actor.name,
            last_used_at=None,
        )
        entry = self._entry(token, "rotate_token", new_id())
        if not self._store.move(token, renewed, entry):
            raise ConflictError(f"the token was rotated or revoked meanwhile: {name!r}")
        return renewed, secret

    def check(self, secret: str) -> AccessToken | None:
        """Return the token with a secret, unless it is expired or revoked.

        The comparison takes constant time.
        """
        match = _FORM.match(secret)
        found = self._store.token(match[1]) if match else None
        digest = found.digest if found is not None else _NO_DIGEST
        is_right = hmac.compare_digest(digest.encode(), _digest(secret).encode())
        now = self._runtime.clock()
        if found is None or not is_right or found.has_expired(now):
            return None
        if found.last_used_at is None or now - found.last_used_at >= _USE_INTERVAL:
            with suppress(StoreError):  # read-only or busy: the request is valid
                self._store.move(found, msgspec.structs.replace(found, last_used_at=now))
        return found

    def _entry(self, token: AccessToken, action: str, entry_id: str) -> AuditEntry:
        """Return the audit entry, without the user."""
        return AuditEntry(
            id=entry_id,
            change_set_id=entry_id,
            at=self._runtime.clock(),
            actor=self._runtime.actor,
            action=action,
            target_type="token",
            target_id=token.id,
            agent_id=token.agents[0] if len(token.agents) == 1 else "",
        )


def _make_secret(token_id: str) -> str:
    return f"{PREFIX}{token_id}_{secrets.token_hex(32)}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def find_tokens(
    store: TokenStore, subject: Subject
) -> Iterator[tuple[AccessToken, tuple[str, ...]]]:
    """Yield tokens with access to a subject to forget, with their remaining agents."""
    users = frozenset(subject.accounts)
    if (subject.kind == "user" and users) or (subject.kind == "agent" and subject.agent_id):
        for token in store.tokens():
            left = token.agents_without(subject.agent_id, users)
            if left != token.agents:
                yield token, left


def withdraw_tokens(runtime: Runtime, subject: Subject) -> int:
    """Remove a subject to forget from tokens, and return the number of changed tokens.

    Tokens without remaining access are revoked.

    Raises:
        ConflictError: a token was rotated or revoked meanwhile.
    """
    store, number = runtime.store.tokens, 0
    for token, left in find_tokens(store, subject):
        if left:
            if not store.move(token, msgspec.structs.replace(token, agents=left)):
                raise ConflictError(
                    f"the token was rotated or revoked meanwhile: {token.name!r}",
                    hint="run the same command again",
                )
        else:
            TokenKeeper(runtime).revoke(token.name)
        number += 1
    return number
