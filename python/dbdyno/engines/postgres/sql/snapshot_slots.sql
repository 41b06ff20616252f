select ${columns}
from pg_catalog.pg_replication_slots
     left join pg_catalog.pg_stat_replication_slots on pg_stat_replication_slots.slot_name = pg_replication_slots.slot_name
     cross join (select case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()
                         else pg_catalog.pg_current_wal_lsn() end as lsn) as here
