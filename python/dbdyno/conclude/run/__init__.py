"""Checks of a run: one function per question, each yields claims."""
