"""Documents over REST: routes, their OpenAPI descriptions, and the translator of the jobs."""
