"""One request on one model: from texts to sequences, and from hypotheses to a response.

`fields`, `request` and `response` are its values, `search_plan` the search that it asks for, `markup` and `segments`
make sentences of texts. `translator` tokenizes, looks into the `cache`, submits with `submission` and waits;
`second_pass` decodes again what lacks terms or placeholders. `pivot` joins two models, `detection` finds languages,
`attention` answers with weights. `large_work` divides large work, `blank` and `word_pieces` are small rules.
"""
