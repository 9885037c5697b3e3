"""The connection and what all parts share: readiness, transactions, codec, filters, errors.

May import: common.
"""
