"""The page at `/`: a translator in the browser, from files of this package."""
