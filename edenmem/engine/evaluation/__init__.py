"""How well search does on labelled queries, and which settings do best."""
