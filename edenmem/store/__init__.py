"""Store memory in SQLite or MongoDB, and read the first version's data."""
