-- A row takes a ninth of a block and fillfactor leaves no room for a second: one row a block, and space for about
-- seven more versions of it, so that updates stay in the block (HOT) and reads of it prune them.
create table ${table} (id bigint not null, visits bigint not null, pad text not null)
with (fillfactor = 10, autovacuum_enabled = off)
