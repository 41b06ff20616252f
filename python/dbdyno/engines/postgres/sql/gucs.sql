-- All settings that this role can see. reset_val is the value of a new session, whatever this session has set.
select name, setting, reset_val, boot_val, pg_catalog.current_setting(name, true) as shown, unit, context, vartype,
       min_val, max_val, enumvals, source, sourcefile, sourceline, pending_restart
from pg_catalog.pg_settings
