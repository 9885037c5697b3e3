"""Setting up and looking at a store."""
