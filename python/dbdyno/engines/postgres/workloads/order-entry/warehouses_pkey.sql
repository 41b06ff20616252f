alter table only dbdyno.warehouses add primary key (warehouse_id)
