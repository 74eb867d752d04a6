"""`dragoman bench graphs`: the graphs of bundles, decode loop against decode loop."""
