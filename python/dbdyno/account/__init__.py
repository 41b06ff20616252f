"""From raw tables to windows, the ledger, rungs, load profile and top events. Pure."""
