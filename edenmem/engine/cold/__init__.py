"""Sessions that went cold, processed from cron.

May import: formation, reports, runtime.
"""
