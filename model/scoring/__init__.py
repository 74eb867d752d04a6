"""How good translations are: BLEU, chrF, exact matches, and how sure that is."""
