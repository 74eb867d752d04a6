"""`dragoman bench scheduling`: what the scheduler promises, seen from inside."""
