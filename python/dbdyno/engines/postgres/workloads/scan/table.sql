-- A row takes a ninth of a block and fillfactor leaves no room for a second: one row a block, so that the executor has
-- little to do for each block.
create table ${table} (id bigint not null, pad text not null)
with (fillfactor = 10, autovacuum_enabled = off)
