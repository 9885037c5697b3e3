"""The definitions of indexes on MongoDB, and the unique key of facts."""
