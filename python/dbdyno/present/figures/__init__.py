"""Figures that several parts of a document share: series, accounts, heads, JSON."""
