"""Language models and their providers."""
