"""A request's way from what was asked to what is answered: texts, sentences, tokens and back."""
