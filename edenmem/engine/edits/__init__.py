"""Changes made by hand."""
