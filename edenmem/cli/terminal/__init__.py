"""Reading from and writing to a terminal, a pipe or a file.

May import: nothing of this part.
"""
