-- What this role sees of others, and what the server records at all.
select pg_catalog.quote_ident(current_user) as role,
       (select rolsuper from pg_catalog.pg_roles where rolname = current_user) as superuser,
       pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage') as all_sessions,
       pg_catalog.current_setting('track_activities')::bool as states,
       -- by name, since a later version may lack the column
       (select pg_catalog.to_jsonb(a) ->> 'query_id' is not null
        from pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) as a) as query_ids,
       pg_catalog.current_setting('track_io_timing')::bool as io_timing,
       l.loaded or exists (select from pg_catalog.pg_available_extensions() where name = 'pg_stat_statements')
           as has_statements,
       l.loaded as statements_loaded,
       (select extversion from pg_catalog.pg_extension where extname = 'pg_stat_statements') as statements_version,
       not exists (
           select from pg_catalog.pg_extension as e
                join pg_catalog.pg_proc as p on p.pronamespace = e.extnamespace
           where e.extname = 'pg_stat_statements' and p.proname in ('pg_stat_statements', 'pg_stat_statements_info')
             and not (pg_catalog.has_schema_privilege(e.extnamespace, 'usage')
                      and pg_catalog.has_function_privilege(p.oid, 'execute'))
       ) as statements_permitted,
       pg_catalog.regexp_replace(pg_catalog.current_setting('deadlock_timeout'), '([0-9])([a-z])', '\1 \2')
           as deadlock_timeout,
       (select rolname::text from pg_catalog.pg_roles where rolname = any(%(services)s)) as service_role
from (
    -- a placeholder, which a file may hold without the library, is not listed
    select exists (select from pg_catalog.pg_settings where name = 'pg_stat_statements.max') as loaded
) as l
