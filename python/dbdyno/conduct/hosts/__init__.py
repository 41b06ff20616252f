"""Other hosts: the server's, and those that drive the load."""
