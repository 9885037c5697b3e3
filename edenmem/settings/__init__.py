"""Configuration: settings, their defaults, and the origin of each value."""
