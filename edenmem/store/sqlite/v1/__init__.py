"""The staging area of a migration, for the documents of v1.

May import: nothing of this part.
"""
