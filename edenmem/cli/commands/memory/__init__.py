"""Facts, reflections, texts, and their log."""
