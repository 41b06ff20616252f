"""From stored raw cells to everything that is shown."""
