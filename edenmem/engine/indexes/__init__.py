"""Create, compare, change and drop indexes, and test them on a cluster.

May import: runtime.
"""
