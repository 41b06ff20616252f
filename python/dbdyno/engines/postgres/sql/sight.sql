-- What this role sees of others, and what the server records at all.
select pg_catalog.quote_ident(current_user) as role,
       (select rolsuper from pg_catalog.pg_roles where rolname = current_user) as superuser,
       pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage') as all_sessions,
       pg_catalog.current_setting('track_activities')::bool as states,
       (select query_id is not null from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())) as query_ids,
       pg_catalog.current_setting('track_io_timing')::bool as io_timing,
       pg_catalog.current_setting('pg_stat_statements.max', true) is not null
           or exists (select from pg_catalog.pg_available_extensions() where name = 'pg_stat_statements')
           as statements_there,
       pg_catalog.current_setting('pg_stat_statements.max', true) is not null as statements_loaded,
       exists (select from pg_catalog.pg_extension where extname = 'pg_stat_statements') as statements_made
