alter table only dbdyno.addresses add primary key (address_id)
