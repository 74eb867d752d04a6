"""The demo corpus: a synchronous grammar that writes English-German sentence pairs, so that no download is needed."""
