select wal_records, wal_fpi as wal_full_page_images, wal_bytes, wal_buffers_full
from pg_catalog.pg_stat_wal
