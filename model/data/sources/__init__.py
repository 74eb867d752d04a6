"""Free parallel text: downloads packages, reads their messages and help, aligns, cleans, splits and writes them."""
