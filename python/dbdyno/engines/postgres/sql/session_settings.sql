-- What the connection itself asked for (options, PGOPTIONS, PGTZ, ...), but what it has set since then.
select name, setting from pg_catalog.pg_settings
where source = 'client' and name not in ('application_name', 'client_encoding')
