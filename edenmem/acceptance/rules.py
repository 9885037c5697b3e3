"""The rules, and the judgement that they come to."""

from __future__ import annotations

from edenmem.acceptance.evidence import Candidate, Evidence, Judgement
from edenmem.settings.schema import AcceptanceSettings


def judge(candidate: Candidate, evidence: Evidence, settings: AcceptanceSettings) -> Judgement:
    """Check an item against what was read. Pure: the same input gives the same judgement."""
    return Judgement(content=candidate.content, sources=candidate.sources)
