-- All settings but what this connection asked for. None that may hold a secret: commands with their arguments, where a
-- standby connects to, texts of extensions.
select ${columns}
from pg_catalog.pg_settings
where source <> 'client'
  and name not like '%\_command' and name <> 'primary_conninfo'
  and not (name like '%.%' and vartype = 'string')
