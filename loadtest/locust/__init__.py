"""Users for Locust, for those who have it already: a closed loop, which `dragoman load` is not."""
