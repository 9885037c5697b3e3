"""Input and output: terminals, pipes and files.

May import: nothing of this part.
"""
