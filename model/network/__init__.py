"""The Transformer, its recurrent ancestors, and their layers."""
