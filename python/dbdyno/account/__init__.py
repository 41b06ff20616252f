"""Derives windows, the ledger, rungs, load profile and top events from raw tables. Pure."""
