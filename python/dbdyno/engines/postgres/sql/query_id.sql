-- The id of this statement itself, as others see it.
select query_id from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())
