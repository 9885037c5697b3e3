"""The commands, in one room for each group.

May import: nothing of this part.
"""
