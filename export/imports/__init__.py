"""Imports trained models from the formats of Marian, CTranslate2 and Argos Translate."""
