"""The demo corpus: a synchronous grammar that generates English-German sentence pairs."""
