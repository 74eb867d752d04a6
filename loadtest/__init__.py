"""Load generation: open-loop and closed-loop load on a server, and reports of the results."""
