"""Memory as files: JSON Lines that are complete, and Markdown that people read and edit."""
