select ${columns}
from pg_catalog.pg_stat_slru
