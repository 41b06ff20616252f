-- Whether there is a schema of our name, whose it is, and its mark.
select pg_catalog.pg_get_userbyid(nspowner), coalesce(pg_catalog.obj_description(oid, 'pg_namespace'), '')
from pg_catalog.pg_namespace
where nspname = 'dbdyno'
