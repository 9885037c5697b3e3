"""Acceptance: whether what a model wrote about a conversation may be remembered. Pure functions.

A prompt asks, and code checks: each rule has a name and a switch (settings, section
``acceptance``), and says in one sentence what is wrong, for the model that is asked once more and
for the person who reads the report.
"""
