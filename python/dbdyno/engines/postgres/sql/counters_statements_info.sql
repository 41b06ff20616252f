select dealloc as statements_dropped, extract(epoch from stats_reset) as statements_reset_s
from ${schema}.pg_stat_statements_info()
