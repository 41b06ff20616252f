"""One measurement: the server made ready, sessions connected, watched and counted."""
