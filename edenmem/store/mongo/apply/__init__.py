"""Applying change sets in MongoDB."""
