"""The vocabulary shared by all rooms: words, units, table schemas, errors, protocols. It imports no other
room."""
