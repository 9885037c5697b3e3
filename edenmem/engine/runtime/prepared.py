"""Prepare the types that several threads decode. Import before starting threads.

msgspec describes a type when it is first decoded. If two threads do so at once, one reads an
unfinished description, and the process crashes.
"""

from __future__ import annotations

import msgspec

from edenmem.models.changes import ChangeSet
from edenmem.models.formation import CallUsage, Decision
from edenmem.models.host import ToolCall
from edenmem.models.memory import Consolidation, Policy
from edenmem.models.migration import MigrationRun

for _kind in (CallUsage, ChangeSet, Consolidation, Decision, MigrationRun, Policy, ToolCall):
    msgspec.json.Decoder(_kind)
