"""Compares kinds of attention by their maps: `maps` draws them by words, `command` is `dragoman attention`."""
