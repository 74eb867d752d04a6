"""Models that others have trained, read from the formats of Marian, CTranslate2 and Argos Translate."""
