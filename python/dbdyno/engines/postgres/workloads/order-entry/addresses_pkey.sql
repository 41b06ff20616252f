alter table dbdyno.addresses add primary key (address_id)
