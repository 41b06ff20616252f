-- Rows since the tables were loaded, against the log that the same transactions wrote.
select 'new customers' as name,
       (select count(*) from dbdyno.log where action = 'register-customer') as expected,
       (select count(*) from dbdyno.customers where customer_id > 5000 * ${scale}) as found
