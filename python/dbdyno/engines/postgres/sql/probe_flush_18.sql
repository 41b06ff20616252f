select pg_catalog.pg_stat_force_next_flush()
