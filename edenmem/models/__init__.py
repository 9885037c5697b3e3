"""The shapes of everything; knows nobody."""
