alter table dbdyno.products add primary key (product_id)
