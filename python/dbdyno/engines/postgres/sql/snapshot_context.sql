-- Facts on the server for a snapshot, some of which decide how the rest is read. Times in seconds since 1970.
select extract(epoch from pg_catalog.clock_timestamp())::float8 as now_s,
       extract(epoch from pg_catalog.pg_postmaster_start_time())::float8 as started_s,
       pg_catalog.pg_is_in_recovery() as standby,
       (select setting::int8 from pg_catalog.pg_settings where name = 'shared_buffers') as buffers,
       pg_catalog.current_setting('block_size')::int8 as block_bytes,
       current_user::text as role,
       pg_catalog.quote_ident(current_user)::text as quoted,
       pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage') as all_stats,
       pg_catalog.pg_has_role(current_user, 'pg_read_all_settings', 'usage') as all_settings,
       array(select name::text from pg_catalog.pg_settings where vartype = 'bool' and setting = 'off') as off,
       -- asks only for what is granted, since a refusal would be an error in the server's log
       array(select relname::text from pg_catalog.pg_class
             where relnamespace = 'pg_catalog'::pg_catalog.regnamespace and relkind in ('r', 'v')
                   and not pg_catalog.has_table_privilege(oid, 'select')
             union
             select proname::text from pg_catalog.pg_proc
             where pronamespace = 'pg_catalog'::pg_catalog.regnamespace and proname like 'pg\_%'
                   and not pg_catalog.has_function_privilege(oid, 'execute')) as refused,
       -- as bytes, since a name is in the encoding of the client that chose it; and the database's encoding
       array(select pg_catalog.encode(pg_catalog.namesend(datname), 'hex') || ' ' || pg_catalog.pg_encoding_to_char(encoding)
             from pg_catalog.pg_database
             where datallowconn and not datistemplate and pg_catalog.has_database_privilege(oid, 'connect')
             order by datname <> pg_catalog.current_database(), datname) as connectable,
       array(select pg_catalog.encode(pg_catalog.namesend(datname), 'hex') || ' ' || pg_catalog.pg_encoding_to_char(encoding)
             from pg_catalog.pg_database
             where datallowconn and not datistemplate and not pg_catalog.has_database_privilege(oid, 'connect')
             order by datname) as closed
