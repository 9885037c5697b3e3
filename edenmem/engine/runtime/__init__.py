"""Shared by all parts of the engine: the actor, prompts, model calls, threads, usage.

May import: nothing of this part.
"""
