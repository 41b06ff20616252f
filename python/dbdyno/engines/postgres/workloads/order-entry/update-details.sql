-- A customer moves: the address changes in place, so that there are no more addresses afterwards.
\set customer random(1, 5000 * :scale)
\set house random(1, 200)
begin;
select first_name, last_name, address_id as address from dbdyno.customers where customer_id = :customer \gset
update dbdyno.addresses set house = :house where address_id = :address;
insert into dbdyno.log (action, customer_id) values ('update-details', :customer);
commit;
