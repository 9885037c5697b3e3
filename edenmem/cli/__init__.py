"""The command line: parse, call one engine method, print one result."""
