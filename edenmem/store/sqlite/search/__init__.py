"""Full text, vectors and their indexes in SQLite."""
