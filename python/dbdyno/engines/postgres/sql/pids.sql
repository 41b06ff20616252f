-- All processes of the activity view, which any role may see.
select pid from pg_catalog.pg_stat_get_activity(null)
