"""The subject of a measurement: the keys of a recipe, the resolved plan, and its cells."""
