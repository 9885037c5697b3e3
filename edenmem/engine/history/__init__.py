"""The log, undo, and where a memory comes from."""
