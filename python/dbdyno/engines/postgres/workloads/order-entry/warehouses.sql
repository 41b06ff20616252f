-- One row a block, with room for new versions beside it: an order counts itself in its warehouse.
create table dbdyno.warehouses (
    warehouse_id integer not null,
    name text not null,
    orders_taken bigint not null,
    filler text not null
) with (fillfactor = 10)
