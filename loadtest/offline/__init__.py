"""`dragoman bench offline`: whole translations by the engine and by its peers."""
