"""Tokenizers: SentencePiece models with one shared vocabulary, or with separate vocabularies."""
