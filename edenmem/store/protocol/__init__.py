"""What a store does, as one protocol for each capability.

May import: nothing of this part.
"""
