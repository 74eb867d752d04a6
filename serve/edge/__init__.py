"""What every interface needs: authentication, load shedding, bodies, problems and events."""
