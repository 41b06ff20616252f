"""What an engine provides and what is known of its server and machine: protocols and their data."""
