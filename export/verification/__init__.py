"""What `dragoman verify` is made of: the checks, and what they compare a bundle with."""
