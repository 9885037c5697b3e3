"""Framework of the command line: invocation, options, completion, errors, shared views.

May import: terminal.
"""
