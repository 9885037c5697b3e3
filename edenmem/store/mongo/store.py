"""The store: all parts in one object."""

from __future__ import annotations

from edenmem.store.common.whole import Whole
from edenmem.store.mongo.erase.erasing import ErasingPart
from edenmem.store.mongo.erase.forgettings import ForgettingsPart
from edenmem.store.mongo.formations.cold import ColdPart
from edenmem.store.mongo.formations.usage import UsagePart
from edenmem.store.mongo.indexes.indexing import IndexPart
from edenmem.store.mongo.memory.auditing import AuditPart
from edenmem.store.mongo.memory.propagation import PropagationPart
from edenmem.store.mongo.search.switching import SwitchPart
from edenmem.store.mongo.walk.integrity import IntegrityPart
from edenmem.store.mongo.walk.loading import HistoryLoadingPart
from edenmem.store.mongo.walk.statistics import StatisticsPart


class MongoStore(
    ForgettingsPart,
    ErasingPart,
    IntegrityPart,
    StatisticsPart,
    SwitchPart,
    HistoryLoadingPart,
    ColdPart,
    PropagationPart,
    UsagePart,
    IndexPart,
    AuditPart,
    Whole,
):
    """Memory in MongoDB; implements `edenmem.store.protocol.store.Store`.

    Safe to share between threads. Documents keep the platform's names and types, so that it can
    be pointed at a live database. Writing takes transactions, and so a replica set.
    """
