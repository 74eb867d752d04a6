"""The models: the Transformer and its recurrent ancestors, and what they are made of."""
