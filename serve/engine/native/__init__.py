"""Native engines: the loop in C++ as requests and the registry see it."""
