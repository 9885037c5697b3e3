"""Process quiet sessions from cron.

May import: formation, reports, runtime.
"""
