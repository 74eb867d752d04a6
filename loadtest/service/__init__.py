"""`dragoman bench service`: what the service costs over its bare engine."""
