"""Models by name: finds, downloads, converts and keeps them, and runs the commands that take names."""
