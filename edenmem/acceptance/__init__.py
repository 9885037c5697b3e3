"""Decide whether a text that a model wrote about a conversation may be remembered. Pure functions.

Prompts ask for good items; these rules check them. Each rule has a name and a switch (settings,
section ``acceptance``) and gives its reason in one sentence, for the model that rewrites the item
and for the reader of the report.
"""
