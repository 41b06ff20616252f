"""One measurement: prepares the server, connects sessions, observes and counts them."""
