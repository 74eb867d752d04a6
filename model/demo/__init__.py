"""The demo corpus: a synchronous grammar that generates English-German sentence pairs.

`inflection` reads the lexicon from YAML and inflects words in both languages, and `grammar` fills the patterns of
sentences. `text` links the words of both sides, so that each pair has gold alignments. `corpus` writes the files. The
same seed gives the same corpus.
"""
