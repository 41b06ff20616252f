"""From what the user asked to a plan."""
