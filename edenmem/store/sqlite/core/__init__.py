"""The file: connections, schema, codec, errors.

May import: common, protocol.
"""
