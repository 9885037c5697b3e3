"""Which scopes there are, who may read and write them, and what typed references mean."""
