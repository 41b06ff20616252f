-- Settings that the connection itself requested (options, PGOPTIONS, PGTZ, ...), without those that it has set
-- since.
select name, setting from pg_catalog.pg_settings
where source = 'client' and name not in ('application_name', 'client_encoding')
