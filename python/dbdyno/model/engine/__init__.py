"""The protocols that an engine implements, and the data that describe its server and its machine."""
