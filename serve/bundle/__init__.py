"""The bundle format: manifest, files and tokenizer, the contract between export and serve."""
