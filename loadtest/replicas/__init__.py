"""`dragoman bench replicas`: several servers of one bundle on the same CPUs, and what a million sentences cost."""
