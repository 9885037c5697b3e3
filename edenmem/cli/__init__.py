"""The command line: parses, calls one engine method, prints one result."""
