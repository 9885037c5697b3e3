"""What all work of the engine needs: the actor, prompts, model calls, threads, usage.

May import: nothing of this part.
"""
