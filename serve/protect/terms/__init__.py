"""Terms of glossaries in sentences and their translations."""
