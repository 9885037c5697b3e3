"""Seal the log, and find changes of it.

May import: runtime.
"""
