"""Define what a store does, with one protocol per capability.

May import: nothing of this part.
"""
