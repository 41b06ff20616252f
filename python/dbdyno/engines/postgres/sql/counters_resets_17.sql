select extract(epoch from greatest((select max(stats_reset) from pg_catalog.pg_stat_database),
                                   (select stats_reset from pg_catalog.pg_stat_wal),
                                   (select max(stats_reset) from pg_catalog.pg_stat_io),
                                   (select stats_reset from pg_catalog.pg_stat_checkpointer),
                                   (select stats_reset from pg_catalog.pg_stat_bgwriter))) as statistics_reset_s
