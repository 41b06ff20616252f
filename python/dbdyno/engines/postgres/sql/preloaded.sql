-- The list of libraries; no row where this role may not see it.
select setting, source, pending_restart
from pg_catalog.pg_settings
where name = 'shared_preload_libraries'
