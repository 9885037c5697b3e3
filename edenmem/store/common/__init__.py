"""Share logic between both stores: schema steps, the platform's progress, past buffers.

May import: nothing of this part.
"""
