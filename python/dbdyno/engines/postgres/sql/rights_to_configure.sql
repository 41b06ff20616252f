-- What a role needs besides ALTER SYSTEM itself: who lacks it, and the statement that gives it.
select g.statement
from (values
    (pg_catalog.has_function_privilege('pg_catalog.pg_reload_conf()', 'execute'),
     'GRANT EXECUTE ON FUNCTION pg_catalog.pg_reload_conf() TO %I'),
    (pg_catalog.has_table_privilege('pg_catalog.pg_file_settings', 'select'),
     'GRANT SELECT ON pg_catalog.pg_file_settings TO %I'),
    (pg_catalog.has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'execute'),
     'GRANT EXECUTE ON FUNCTION pg_catalog.pg_show_all_file_settings() TO %I'),
    (pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'execute'),
     'GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system() TO %I')
) as r (has, template)
cross join lateral (select pg_catalog.format(r.template, current_user) as statement) as g
where not r.has
