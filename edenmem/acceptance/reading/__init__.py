"""What a text says: its words, numbers, dates and times, in any language."""
