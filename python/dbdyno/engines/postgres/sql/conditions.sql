-- Settings that affect the meaning of figures, as in force in this session, in the setting's own unit.
select name, setting, unit, source, pending_restart
from pg_catalog.pg_settings
where name = any ($1::text[]) or pending_restart
