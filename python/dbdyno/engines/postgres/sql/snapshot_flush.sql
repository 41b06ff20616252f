-- Makes this session's counts reported when it ends: transactions alone are not, so it looks at a table, too.
select pg_catalog.pg_stat_force_next_flush() from pg_catalog.pg_database limit 1
