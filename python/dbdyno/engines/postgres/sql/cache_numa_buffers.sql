-- Buffers by node (pg_buffercache 1.6, PostgreSQL 18): touches every page of them. A buffer that lies on two nodes
-- counts on both.
select numa_node::bigint, count(distinct bufferid) * ${block_bytes} from ${schema}.pg_buffercache_numa group by 1
