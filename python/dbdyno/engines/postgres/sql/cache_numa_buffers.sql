-- Buffers by NUMA node (PostgreSQL 18): touches every page. A buffer that spans two nodes counts on both.
select numa_node::bigint, count(distinct bufferid) * ${block_bytes} from ${schema}.pg_buffercache_numa group by 1
