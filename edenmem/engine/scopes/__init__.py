"""Which scopes there are, who may see them, what they are called, and what references mean.

May import: reports.
"""
