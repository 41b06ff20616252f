-- Hint bits and visibility map set, statistics known: nothing is left that a later read would change.
vacuum (freeze, analyze) ${table}
