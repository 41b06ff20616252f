"""What all rooms share: words, units, table schemas, errors, protocols. Knows no other room."""
