-- Where an extension's objects are in this database, and its version.
select pg_catalog.quote_ident(n.nspname), e.extversion
from pg_catalog.pg_extension as e join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
where e.extname = $1::name
