-- Role and database as SQL needs them written, and whether the one may create a schema in the other.
select pg_catalog.quote_ident(current_user),
       pg_catalog.quote_ident(pg_catalog.current_database()),
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create')
