"""Process quiet sessions from cron.

May import: erasure, formation, reports, runtime.
"""
