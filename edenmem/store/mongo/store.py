"""The store: all parts in one object."""

from __future__ import annotations

from edenmem.store.mongo.auditing import AuditPart
from edenmem.store.mongo.cold import ColdPart
from edenmem.store.mongo.erasing import ErasingPart
from edenmem.store.mongo.history_loading import HistoryLoadingPart
from edenmem.store.mongo.indexing import IndexPart
from edenmem.store.mongo.integrity import IntegrityPart
from edenmem.store.mongo.propagation import PropagationPart
from edenmem.store.mongo.statistics import StatisticsPart
from edenmem.store.mongo.switching import SwitchPart
from edenmem.store.mongo.unfinished import UnfinishedPart
from edenmem.store.mongo.usage import UsagePart


class MongoStore(
    ErasingPart,
    IntegrityPart,
    StatisticsPart,
    SwitchPart,
    HistoryLoadingPart,
    ColdPart,
    PropagationPart,
    UsagePart,
    UnfinishedPart,
    IndexPart,
    AuditPart,
):
    """Memory in MongoDB; implements `edenmem.store.protocol.store.Store`.

    Safe to share between threads. Documents keep the platform's names and types, so that it can
    be pointed at a live database; it needs no transactions, and so no replica set.
    """
