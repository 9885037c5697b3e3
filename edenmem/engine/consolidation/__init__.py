"""From pending reflections to the one text of a scope, and to the scope above."""
