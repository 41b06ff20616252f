-- How many blocks a table has.
select pg_catalog.pg_relation_size({}::regclass) / pg_catalog.current_setting('block_size')::bigint
