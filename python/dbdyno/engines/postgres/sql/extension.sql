-- Schema and version of an extension in this database. No row if its library is not loaded or this role may not
-- call its functions, since a refusal would be an error in the server's log.
select pg_catalog.quote_ident(n.nspname), e.extversion
from pg_catalog.pg_extension as e join pg_catalog.pg_namespace as n on n.oid = e.extnamespace
where e.extname = $1::name
  and exists (select from pg_catalog.pg_settings where name = e.extname || '.max')
  and pg_catalog.has_schema_privilege(n.oid, 'usage')
  and not exists (
      select from pg_catalog.pg_proc as p
      where p.pronamespace = n.oid and p.proname in (e.extname, e.extname || '_info')
        and not pg_catalog.has_function_privilege(p.oid, 'execute')
  )
