"""Reading from and writing to a terminal, a pipe or a file."""
