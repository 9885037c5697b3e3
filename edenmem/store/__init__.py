"""Databases; the only place that knows one."""
