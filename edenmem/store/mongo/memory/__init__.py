"""Reading facts, reflections, texts, history and audit in MongoDB."""
