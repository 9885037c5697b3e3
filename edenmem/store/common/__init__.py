"""What both stores share: schema steps, the platform's progress, a buffer's past.

May import: nothing of this part.
"""
