"""Formation, consolidation and cold sessions."""
