-- Settings of a role in this database, as ALTER ROLE left them: NAME=VALUE.
select unnest(s.setconfig)
from pg_catalog.pg_db_role_setting as s
where s.setrole = (select oid from pg_catalog.pg_roles where rolname = ${role})
      and s.setdatabase = (select oid from pg_catalog.pg_database where datname = pg_catalog.current_database())
