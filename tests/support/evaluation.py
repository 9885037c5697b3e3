"""Scores of an evaluation."""

from __future__ import annotations

from edenmem.engine.evaluation import Evaluation, RecipeScore


def overall(evaluation: Evaluation) -> list[RecipeScore]:
    """Return the scores over all queries."""
    return [score for score in evaluation.scores if not score.kind]
