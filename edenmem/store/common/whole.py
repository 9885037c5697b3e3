"""A store whose parts are all itself."""

from __future__ import annotations

from typing import Self


class Whole:
    """Each capability of `edenmem.store.protocol.store.Store`, answered by the store itself."""

    @property
    def database(self) -> Self:
        """What is about the database as a whole."""
        return self

    @property
    def migrations(self) -> Self:
        """The steps of our own schema, and the ledger of runs that brought data here."""
        return self

    @property
    def host(self) -> Self:
        """What the platform owns: agents, accounts, sessions and messages."""
        return self

    @property
    def contexts(self) -> Self:
        """Contexts that are cached with their sessions."""
        return self

    @property
    def memory(self) -> Self:
        """Memory as it is now."""
        return self

    @property
    def history(self) -> Self:
        """Memory as it was."""
        return self

    @property
    def changes(self) -> Self:
        """The one way by which memory is changed."""
        return self

    @property
    def propagation(self) -> Self:
        """Which versions of texts are still to be passed on to other scopes."""
        return self

    @property
    def log(self) -> Self:
        """The log of changes."""
        return self

    @property
    def formations(self) -> Self:
        """Keeps formations, each moved from state to state in one atomic step."""
        return self

    @property
    def usage(self) -> Self:
        """What models cost."""
        return self

    @property
    def cold(self) -> Self:
        """Sessions in which nothing was said for a while."""
        return self

    @property
    def search(self) -> Self:
        """Candidates for search."""
        return self

    @property
    def vectors(self) -> Self:
        """Vectors by the models that they are of."""
        return self

    @property
    def switches(self) -> Self:
        """A second vector for each fact, and which of the two is in force. One switch at a time."""
        return self

    @property
    def indexes(self) -> Self:
        """The indexes of a store."""
        return self

    @property
    def statistics(self) -> Self:
        """Numbers about memory, and none of its text but that of single facts."""
        return self

    @property
    def walk(self) -> Self:
        """Everything that is stored, document by document."""
        return self

    @property
    def erasure(self) -> Self:
        """Finds and removes traces."""
        return self
