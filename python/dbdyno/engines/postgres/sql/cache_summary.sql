-- Buffers used, dirty and pinned; takes no locks (pg_buffercache 1.4, PostgreSQL 16).
select buffers_used::bigint, buffers_dirty::bigint, buffers_pinned::bigint
from ${schema}.pg_buffercache_summary()
