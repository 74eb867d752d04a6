"""Interfaces of other servers: DeepL, LibreTranslate and the Open Inference Protocol."""
