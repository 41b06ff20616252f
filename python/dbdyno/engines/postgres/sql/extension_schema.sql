-- Where an extension's objects are in this database.
select pg_catalog.quote_ident(n.nspname)
from pg_catalog.pg_extension as e join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
where e.extname = $1::name
