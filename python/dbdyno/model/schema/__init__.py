"""Columns of all raw and derived tables, and the data sources that fill them."""
