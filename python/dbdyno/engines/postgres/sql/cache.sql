-- shared_buffers in blocks, and the size of a block.
select setting::bigint, pg_catalog.current_setting('block_size')::int
from pg_catalog.pg_settings where name = 'shared_buffers'
