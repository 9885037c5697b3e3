"""Indexes and vectors."""
