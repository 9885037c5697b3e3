"""From a range of messages to facts and reflections."""
