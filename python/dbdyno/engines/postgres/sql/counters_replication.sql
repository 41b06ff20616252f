-- How far replay is behind. Of a standby the WAL that it has received and not replayed: it does not know for how
-- long. Of a primary WAL and time of the standby that is farthest behind; where that has caught up and no time is
-- shown any more, it is 0. NULL: there is none, or this role may not see it.
select case when there.bytes < 0 then 0 else there.bytes end as replay_behind_bytes,
       case when here.standby then null
            when there.delay is null and there.bytes <= 0 then 0
            else 1e9 * extract(epoch from there.delay) end as replay_lag_ns
from (select pg_catalog.pg_is_in_recovery() as standby,
             case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_receive_lsn()
                  else pg_catalog.pg_current_wal_lsn() end as lsn) as here
     left join lateral (
         select here.lsn - pg_catalog.pg_last_wal_replay_lsn() as bytes, null::interval as delay
         where here.standby
         union all
         (select here.lsn - replay_lsn, replay_lag
          from pg_catalog.pg_stat_replication
          where not here.standby and replay_lsn is not null
          order by replay_lsn
          limit 1)
     ) as there on true
