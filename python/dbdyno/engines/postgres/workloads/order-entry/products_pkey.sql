alter table only dbdyno.products add primary key (product_id)
