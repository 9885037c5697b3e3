"""Importing conversations."""
