"""Parallel text: reading, cleaning, tokenization and batches.

A data specification such as `multi30k:en-de` names a source: files and tables (`corpus`), `multi30k`, or data sets of
`hugging_face`. `cleaning` drops pairs and holds out validation data, `segmentation` makes token ids, `batches` groups
them by length, and `report` prints statistics. Text stays text up to `segmentation`. The packages in `sources` give the
text of the included model.
"""
