select buffers_checkpoint + buffers_clean + buffers_backend as block_writes from pg_catalog.pg_stat_bgwriter
