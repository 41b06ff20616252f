"""Checks of a run: one function a question, each returns claims."""
