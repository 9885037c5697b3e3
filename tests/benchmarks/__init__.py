"""How fast edenmem is, beside named others in the same run: ``python -m tests.benchmarks``.

One module for each subject. Each makes rows: what was measured, the baseline's figure, edenmem's,
and what is to be reached. Baselines and edenmem take turns, so that whatever else the machine does
falls on both alike; a figure is the median of its repetitions unless its name says otherwise.
"""
