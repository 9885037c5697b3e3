"""The memory that goes into a prompt, and recall for one message."""
