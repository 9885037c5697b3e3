"""The commands, one package per group.

May import: nothing of this part.
"""
