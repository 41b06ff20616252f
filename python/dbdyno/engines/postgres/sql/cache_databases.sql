select oid::bigint, datname::text from pg_catalog.pg_database
