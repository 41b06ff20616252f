"""Charts over time and load, flame graphs, heat strips."""
