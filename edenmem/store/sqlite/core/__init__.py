"""The file: connections, schema, codec, errors."""
