"""From a query to ranked facts, with the reasons."""
