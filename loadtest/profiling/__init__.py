"""`dragoman profile`: where the time of a step goes."""
