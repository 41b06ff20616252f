alter table only dbdyno.inventories add primary key (warehouse_id, product_id)
