select wal.wal_fpi as wal_full_page_images,
       (case when pg_catalog.pg_is_in_recovery() then pg_catalog.pg_last_wal_replay_lsn()
             else pg_catalog.pg_current_wal_insert_lsn() end) - '0/0'::pg_catalog.pg_lsn as wal_position,
       pg_catalog.pg_stat_get_checkpointer_num_timed()
       + pg_catalog.pg_stat_get_checkpointer_num_requested() as checkpoints_begun,
       control.redo_lsn - '0/0'::pg_catalog.pg_lsn as checkpoint_start
from pg_catalog.pg_stat_get_wal() as wal, pg_catalog.pg_control_checkpoint() as control
