-- Every database, and the relations that all share (without a name).
select ${columns}
from pg_catalog.pg_stat_database
     left join pg_catalog.pg_database on pg_database.oid = pg_stat_database.datid
