-- Settings that affect performance, and all that are not at their default, except those that may hold a secret. For
-- settings that this connection has changed, the value of other sessions.
select name, case when source = 'session' then reset_val || coalesce(unit, '')
                 else pg_catalog.current_setting(name, true) end
from pg_catalog.pg_settings
where (name = any (array['shared_buffers', 'effective_cache_size', 'work_mem', 'max_connections', 'fsync',
                         'synchronous_commit', 'full_page_writes', 'wal_level', 'max_wal_size',
                         'checkpoint_timeout', 'autovacuum', 'jit', 'huge_pages', 'huge_pages_status',
                         'io_method', 'io_workers', 'io_min_workers', 'io_max_workers', 'max_parallel_workers',
                         'data_checksums', 'block_size', 'default_toast_compression',
                         'track_activities', 'track_io_timing', 'track_wal_io_timing', 'shared_preload_libraries',
                         'update_process_title', 'debug_assertions'])
       or source not in ('default', 'override', 'client', 'session')
       or source = 'session' and reset_val <> boot_val)
  and name not in ('primary_conninfo', 'primary_slot_name', 'archive_command', 'restore_command',
                   'archive_cleanup_command', 'recovery_end_command', 'ssl_passphrase_command')
  and name not like '%.%'
order by name
