"""Documents as data, pages and colours, and files that are replaced whole."""
