"""Training further: `imported` models as its beginning, `pairs` as its data, and a `comparison` of its result."""
