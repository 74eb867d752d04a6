"""Tokenizers: SentencePiece models with one shared vocabulary, or with separate vocabularies.

`tokenizer` is the interface, and the tokenizer of trained models. Imported models have two more: `piece_tokenizer`
maps the pieces of SentencePiece with a vocabulary of its own, and `word_tokenizer` splits words by Moses' rules and
`bpe`; `vocabularies` is what both share. A run that trains an imported model further has a
`frozen_tokenizer`. A server imports this package; it needs no torch.
"""
