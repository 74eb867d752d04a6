"""What `dragoman evaluate` is made of: runs, bundles, servers and files as systems, and the scores they get."""
