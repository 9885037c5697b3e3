"""The command line's frame: commands, options, completion, errors."""
