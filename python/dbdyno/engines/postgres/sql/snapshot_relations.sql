-- Tables, materialized views and partitions of this database; what they keep out of line is counted with them.
select ${columns}
from pg_catalog.pg_class
     join pg_catalog.pg_database on pg_database.datname = pg_catalog.current_database()
     join pg_catalog.pg_namespace on pg_namespace.oid = pg_class.relnamespace
     join pg_catalog.pg_stat_all_tables on pg_stat_all_tables.relid = pg_class.oid
     join pg_catalog.pg_statio_all_tables on pg_statio_all_tables.relid = pg_class.oid
     left join pg_catalog.pg_class as root
         on root.oid = case when pg_class.relispartition then pg_catalog.pg_partition_root(pg_class.oid) end
     left join pg_catalog.pg_namespace as root_schema on root_schema.oid = root.relnamespace
where pg_class.relkind in ('r', 'm')
