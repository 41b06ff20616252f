-- Writes and syncs of WAL by all processes; syncs are 0 with wal_sync_method = open_datasync or open_sync.
select wal_write as wal_writes, wal_sync as wal_syncs
from pg_catalog.pg_stat_wal
