-- All settings that this role sees. reset_val is what a session begins with, whatever we set in ours.
select name, setting, reset_val, boot_val, pg_catalog.current_setting(name, true) as shown, unit, context, vartype,
       min_val, max_val, enumvals, source, sourcefile, sourceline, pending_restart
from pg_catalog.pg_settings
