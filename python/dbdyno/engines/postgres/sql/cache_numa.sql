-- Shared memory by node (PostgreSQL 18): touches every page of it.
select numa_node::bigint, sum(size)::bigint from pg_catalog.pg_shmem_allocations_numa group by 1
