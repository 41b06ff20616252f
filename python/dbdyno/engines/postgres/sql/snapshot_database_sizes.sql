-- Sizes of databases. Reads the size of every file, for at most ${seconds} s.
select oid::int8,
       case
           when pg_catalog.clock_timestamp() < (select pg_catalog.clock_timestamp()) + interval '${seconds} s'
                and (pg_catalog.has_database_privilege(oid, 'connect')
                     or pg_catalog.pg_has_role(current_user, 'pg_read_all_stats', 'usage'))
               then pg_catalog.pg_database_size(oid)
       end as size_bytes
from pg_catalog.pg_database
order by datname = pg_catalog.current_database() desc
