select num_timed as checkpoints_timed,
       num_requested as checkpoints_requested,
       buffers_written as checkpoint_blocks_written
from pg_catalog.pg_stat_checkpointer
