"""The connection: collections, indexes, codec, filters, errors."""
