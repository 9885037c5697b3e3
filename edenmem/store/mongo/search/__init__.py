"""Candidates from Atlas Search or an exact scan, and the vectors behind them.

May import: mongo.core, protocol.
"""
