-- What the connection itself asked for (options, PGOPTIONS, PGTZ, ...): the sessions get the same.
select name, setting from pg_catalog.pg_settings
where source = 'client' and name not in ('application_name', 'client_encoding')

union all
-- The control connection has set its own timeouts to none, and a search_path of its own: the sessions have those that it
-- would have.
select name, reset_val from pg_catalog.pg_settings
where source = 'session' and (name like '%\_timeout' or name = 'search_path') and reset_val <> boot_val
