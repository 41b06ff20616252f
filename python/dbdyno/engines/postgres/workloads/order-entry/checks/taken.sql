-- Orders since the tables were loaded, as the warehouses counted them.
select 'orders counted by their warehouses' as name,
       (select count(*) from dbdyno.orders where order_id > 25000 * ${scale}) as expected,
       (select sum(orders_taken)::bigint from dbdyno.warehouses) as found
