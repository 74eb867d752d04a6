"""Word alignments: files of links, their error rate, and extraction from a model's attention."""
