-- Dead rows of this database that vacuum has not removed.
select coalesce(sum(n_dead_tup), 0)::int8 as dead, pg_catalog.current_database()::text as database
from pg_catalog.pg_stat_all_tables
