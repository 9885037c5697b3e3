"""The health of a store: what is looked at, what was found, and what may be mended."""
