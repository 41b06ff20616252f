-- Indexes of this database, without those of system tables.
select ${columns}
from pg_catalog.pg_index
     join pg_catalog.pg_database on pg_database.datname = pg_catalog.current_database()
     join pg_catalog.pg_stat_all_indexes on pg_stat_all_indexes.indexrelid = pg_index.indexrelid
     join pg_catalog.pg_statio_all_indexes on pg_statio_all_indexes.indexrelid = pg_index.indexrelid
where pg_stat_all_indexes.schemaname not in ('pg_catalog', 'information_schema', 'pg_toast')
