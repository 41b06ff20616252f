create index addresses_customer on dbdyno.addresses (customer_id, address_id)
