"""Word alignments: files of links and their error rate, and links between tokens.

`dragoman.model.attention_alignment` links words by a model's attention.
"""
