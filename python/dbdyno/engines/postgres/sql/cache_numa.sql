-- Shared memory by NUMA node (PostgreSQL 18): touches every page.
select numa_node::bigint, sum(size)::bigint from pg_catalog.pg_shmem_allocations_numa group by 1
