"""How fast edenmem is, beside named others in the same run: ``python -m tests.benchmarks``.

One module for each subject. Each makes rows: what was measured, the baseline's figure, edenmem's,
and what is to be reached. Baselines and edenmem take turns, so that whatever else the machine does
falls on both alike; a figure is the median of its repetitions unless its name says otherwise.
"""

import os

# OpenBLAS's threads go on spinning after their work, on the cores of whoever's turn is next. Read
# when numpy is first imported, and by the processes that are started.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
