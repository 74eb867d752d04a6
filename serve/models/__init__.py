"""The models that are served: opened, proven, chosen among, replaced and retired."""
