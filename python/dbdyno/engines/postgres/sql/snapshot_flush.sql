-- Makes the server count this session's transactions when this one ends. A transaction alone is not reported, so it
-- reads a table.
select pg_catalog.pg_stat_force_next_flush() from pg_catalog.pg_database limit 1
