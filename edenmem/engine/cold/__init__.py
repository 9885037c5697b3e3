"""Process quiet sessions from cron.

May import: edits, erasure, formation, reports, runtime.
"""
