"""Columns of every raw and derived table, and the data sources that fill them."""
