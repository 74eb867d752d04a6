"""One request on one model: from texts to sequences, and from hypotheses to a response.

`fields`, `request` and `response` are its values. `translator` lists the stages of a `job`: `segments` cuts texts and
tokenizes, `cache` has results, `submission` connects with the engines, `second_pass` decodes again what lacks terms or
placeholders, `renderer` joins translations, `streams` makes deltas. `shares` has the requests that share a job.
`markup` has the rules of tags, `pivot` joins two models, `detection` finds languages, `attention` answers with weights.
`large_work` divides large work.
"""
