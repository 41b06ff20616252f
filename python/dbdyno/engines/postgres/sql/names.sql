-- Oids of a role and a database by name, and all names there are.
select (select oid::bigint from pg_catalog.pg_roles where rolname = $1::name) as "user",
       (select oid::bigint from pg_catalog.pg_database where datname = $2::name) as "database",
       (select pg_catalog.array_agg(rolname::text) from pg_catalog.pg_roles) as users,
       (select pg_catalog.array_agg(datname::text) from pg_catalog.pg_database where not datistemplate) as databases
