"""The connection, and helpers for all parts: readiness, transactions, codec, filters, errors.

May import: common.
"""
