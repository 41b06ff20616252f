"""From tables to conclusions: findings, answers, comparisons, verdicts. Pure."""
