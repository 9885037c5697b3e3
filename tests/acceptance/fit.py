"""``python -m tests.acceptance.fit``: fit the model of `edenmem.acceptance.form`.

Fitted are good items and bad ones of form, without secrets, echoes and wrong sources, which other
rules find; and ``statements``: 4,700 items without a conversation, written so that good and bad
ones look alike. For each set, the table printed first has what a model does that was fitted to the
others. Needs scikit-learn, which the tests do not: the fitted table is in the package.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from edenmem.acceptance import form
from edenmem.acceptance.evidence import Evidence
from tests.acceptance.labeled import DATA, SETS, read, read_evidence

TABLE = Path(form.__file__).with_name("likeness.bin")
#: The types of bad items that are statements in form.
_OTHER_FAULTS = ("secret", "echo", "agent_only", "agent only", "sources")
#: The inverse strength of regularization (L2), and what an item without a conversation counts.
_C, _STATEMENT = 0.2, 0.5


class Example(NamedTuple):
    """Whether an item is good, the places of its features, and how much it counts."""

    good: bool
    places: list[int]
    weight: float = 1.0


def examples_of(name: str) -> list[Example]:
    """Return the items of a set that the model is fitted to."""
    kept = (item for item in read(name)[0] if item.label in ("good", "form"))
    return [
        Example(item.good, _places(item.text, read_evidence(item)))
        for item in kept
        if item.good or item.type not in _OTHER_FAULTS
    ]


def statements() -> list[Example]:
    """Return the items without a conversation: each has the names in it as its evidence.

    A full stop is added where it is missing, since many good ones have none.
    """
    found = []
    for line in (DATA / "statements.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        text = row["text"] if not row["text"][-1].isalnum() else f"{row['text']}."
        evidence = Evidence(users=tuple(row["names"]), context=tuple(row["terms"]))
        places = _places(text, evidence)
        found.append(Example(row["good"], places, _STATEMENT))
    return found


def _places(text: str, evidence: Evidence) -> list[int]:
    return sorted(form.places_of(text, evidence))


def fit(examples: list[Example]) -> np.ndarray:
    """Return the weights as signed bytes."""
    rows = [row for row, each in enumerate(examples) for _ in each.places]
    columns = [place for each in examples for place in each.places]
    shape = (len(examples), form.SIZE)
    matrix = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
    model = LogisticRegression(C=_C, fit_intercept=False, max_iter=3000, solver="liblinear")
    labels = [not each.good for each in examples]
    model.fit(matrix, labels, sample_weight=[each.weight for each in examples])
    weights = np.rint(model.coef_[0] * form.UNITS)
    return np.clip(weights, -127, 127).astype(np.int8)


def score(weights: np.ndarray, example: Example) -> float:
    """Return the log odds of an item."""
    return float(weights[example.places].astype(int).sum()) / form.UNITS


def main() -> None:
    """Print the figures of each set left out, and write the table."""
    by_set = {name: examples_of(name) for name in SETS}
    loose = statements()
    print("| left out | good refused | bad refused | good in doubt | bad in doubt |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, examples in by_set.items():
        others = [each for other, rest in by_set.items() if other != name for each in rest]
        weights = fit(others + loose)
        cells = []
        for least in (form.REFUSED, form.DOUBTED):
            for good in (True, False):
                of_kind = [each for each in examples if each.good is good]
                found = sum(score(weights, each) >= least for each in of_kind)
                cells.append(f"{found / len(of_kind):.1%}")
        print(f"| `{name}` | {' | '.join(cells)} |", flush=True)
    TABLE.write_bytes(fit(sum(by_set.values(), loose)).tobytes())


if __name__ == "__main__":
    main()
