"""Sessions that went quiet."""
