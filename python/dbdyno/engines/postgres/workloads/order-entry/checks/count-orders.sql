-- Rows since the tables were loaded, against the log that the same transactions wrote.
select 'new orders' as name,
       (select count(*) from dbdyno.log where action = 'order-products') as expected,
       (select count(*) from dbdyno.orders where order_id > 25000 * ${scale}) as found
