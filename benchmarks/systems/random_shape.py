"""The shape of the random model that benchmarks measure unless they are told another. Knows no torch."""

from model.config import TransformerConfig

# The base model of Vaswani et al. 2017, table 3; its vocabulary is an option of its own.
BASE = TransformerConfig(max_source_tokens=64, max_target_tokens=64)
BASE_VOCABULARY_SIZE = 32_000
# What made-up words of four letters suffice for, and the special tokens beside them.
MOST_TOKENS = 26**4
