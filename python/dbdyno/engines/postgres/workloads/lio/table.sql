-- fillfactor 10 and rows of 500 bytes: one row a block. No autovacuum: logical reads a call stay the same.
create table ${table} (id bigint not null, pad text not null)
with (fillfactor = 10, autovacuum_enabled = off)
