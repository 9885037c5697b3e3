"""Numbers about memory."""
