"""What a store does, as one protocol for each capability."""
