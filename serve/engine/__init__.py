"""Continuous batching: sequences, who runs when, and the engines that move them on by one token at each step."""
