"""Configuration: what can be set, its defaults, and where each value came from."""
