select ${columns}
from pg_catalog.pg_stat_replication
     cross join (select case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()
                         else pg_catalog.pg_current_wal_lsn() end as lsn) as here
