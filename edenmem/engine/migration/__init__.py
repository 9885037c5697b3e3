"""Moving memory of the first version into a store of the second."""
