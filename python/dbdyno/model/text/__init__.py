"""Text: lists of CPUs, nouns of kinds of runs, and safe display of foreign texts."""
