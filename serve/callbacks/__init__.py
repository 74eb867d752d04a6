"""Call backs: signed requests to hosts of clients that report the end of a job, in place of polling."""
