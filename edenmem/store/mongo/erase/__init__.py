"""Erasing the traces of a subject from MongoDB."""
