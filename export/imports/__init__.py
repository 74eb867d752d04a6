"""Imports trained models from the formats of other toolkits, without their libraries.

`hugging_face` reads checkpoints by the kind in config.json: `marian`, `fairseq` (M2M100, NLLB-200, SMaLL-100 and
mBART-50), `t5` (also MADLAD-400). `marian_files` reads Marian's own models, also of Firefox Translations. `ctranslate2`
reads CTranslate2 models and packages of Argos Translate. All yield `dragoman.model.weights` and a tokenizer. Tensors
stay in their files (`stored`) until the bundle is written, and `golden` finds texts for the golden sentences.
"""
