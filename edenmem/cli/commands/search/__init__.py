"""Finding facts, and the context of a prompt."""
