create table dbdyno.inventories (
    product_id integer not null,
    warehouse_id integer not null,
    initial integer not null,
    on_hand integer not null
) with (fillfactor = 80)
