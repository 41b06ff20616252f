alter table dbdyno.warehouses add primary key (warehouse_id)
