-- A new customer with an address.
\set house random(1, 200)
\set credit random(100, 5000)
\set name random(1, 1000000000)
begin;
insert into dbdyno.customers (first_name, last_name, email, credit_limit, address_id)
values ('First', 'Last' || (:name)::bigint::text, 'new' || (:name)::bigint::text || '@example.com', :credit, 0)
returning customer_id as customer \gset
insert into dbdyno.addresses (customer_id, house, street, town, post_code)
values (:customer, :house, 'Street', 'Town', '012345') returning address_id as address \gset
update dbdyno.customers set address_id = :address where customer_id = :customer;
insert into dbdyno.log (action, customer_id) values ('register-customer', :customer);
commit;
