"""Languages: English names and codes, independent of protocols."""
