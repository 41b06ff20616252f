-- What the connection itself asked for (options, PGOPTIONS, PGTZ, ...): the sessions get the same.
select name, setting from pg_catalog.pg_settings
where source = 'client' and name not in ('application_name', 'client_encoding')
