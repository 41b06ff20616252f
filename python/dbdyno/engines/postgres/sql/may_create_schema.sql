-- Role and database, quoted for SQL, and whether the role may create a schema in the database.
select pg_catalog.quote_ident(current_user),
       pg_catalog.quote_ident(pg_catalog.current_database()),
       pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create')
