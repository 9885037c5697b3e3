"""``python -m tests.acceptance.fit``: fit the model of `edenmem.acceptance.likeness`.

Fitted are good items and bad ones of form, without secrets, echoes and wrong sources, which other
rules find. For each set, the table printed first has what a model does that was fitted to all other
sets. Needs scikit-learn, which the tests do not: the fitted table is in the package.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from edenmem.acceptance import likeness
from tests.acceptance.labeled import SETS, Item, read, read_evidence

TABLE = Path(likeness.__file__).with_name("likeness.bin")
#: The types of bad items that are statements in form.
_OTHER_FAULTS = ("secret", "echo", "agent_only", "agent only", "sources")
#: The inverse strength of regularization (L2).
_C = 0.5


def items_of(name: str) -> list[Item]:
    """Return the items of a set that the model is fitted to."""
    kept = (item for item in read(name)[0] if item.label in ("good", "form"))
    return [item for item in kept if item.good or item.type not in _OTHER_FAULTS]


def fit(items: list[Item]) -> np.ndarray:
    """Return the weights as signed bytes."""
    rows, columns = [], []
    for row, item in enumerate(items):
        places = likeness.places_of(item.text, item.scope, read_evidence(item))
        rows += [row] * len(places)
        columns += places
    shape = (len(items), likeness.SIZE)
    matrix = csr_matrix((np.ones(len(rows)), (rows, columns)), shape=shape)
    model = LogisticRegression(C=_C, fit_intercept=False, max_iter=3000)
    model.fit(matrix, [not item.good for item in items])
    weights = np.rint(model.coef_[0] * likeness.UNITS)
    return np.clip(weights, -127, 127).astype(np.int8)


def score(weights: np.ndarray, item: Item) -> float:
    """Return the log odds of an item."""
    places = sorted(likeness.places_of(item.text, item.scope, read_evidence(item)))
    return float(weights[places].astype(int).sum()) / likeness.UNITS


def main() -> None:
    """Print the figures of each set left out, and write the table."""
    by_set = {name: items_of(name) for name in SETS}
    print("| left out | good in doubt | bad in doubt |")
    print("| --- | ---: | ---: |")
    for name, items in by_set.items():
        others = [item for other, rest in by_set.items() if other != name for item in rest]
        weights = fit(others)
        cells = []
        for good in (True, False):
            of_kind = [item for item in items if item.good is good]
            doubted = sum(score(weights, item) >= likeness.DOUBTED[item.kind] for item in of_kind)
            cells.append(f"{doubted / len(of_kind):.1%}")
        print(f"| `{name}` | {' | '.join(cells)} |")
    TABLE.write_bytes(fit([item for items in by_set.values() for item in items]).tobytes())


if __name__ == "__main__":
    main()
