"""Exports a trained model to a bundle, and verifies, evaluates and inspects bundles."""
