"""Decide which texts that a model wrote about a conversation may be remembered. Pure functions.

Code checks form with certainty: what breaks a rule is refused. Meaning is checked by quotes and by
asking once more: a doubt never refuses an item, it asks for verification and is shown.
"""
