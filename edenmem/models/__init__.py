"""Data types shared by all packages; imports none of them."""
