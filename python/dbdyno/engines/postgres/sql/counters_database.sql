select blks_hit as database_blocks_hit,
       blks_read as database_blocks_read,
       xact_commit as transactions_committed,
       xact_rollback as transactions_rolled_back,
       tup_returned as rows_returned,
       tup_fetched as rows_fetched,
       tup_inserted as rows_inserted,
       tup_updated as rows_updated,
       tup_deleted as rows_deleted,
       temp_bytes as temporary_bytes,
       deadlocks as deadlocks,
       blk_read_time * 1e6 as block_read_time_ns,
       blk_write_time * 1e6 as block_write_time_ns
from pg_catalog.pg_stat_database
where datname = pg_catalog.current_database()
