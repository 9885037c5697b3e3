"""Claims, formations, quiet sessions and usage in MongoDB."""
