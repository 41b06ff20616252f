-- Three products, in ascending order of their numbers: rows of stock are locked in one order, and nothing deadlocks.
-- The warehouse counts its orders last: its row is locked for as short a time as can be.
\set customer random(1, 5000 * :scale)
\set warehouse random(1, :warehouses)
\set product1 random(1, 333)
\set product2 random(334, 666)
\set product3 random(667, 999)
\set quantity1 random(1, 5)
\set quantity2 random(1, 5)
\set quantity3 random(1, 5)
begin;
select credit_limit from dbdyno.customers where customer_id = :customer;
select price as price1 from dbdyno.products where product_id = :product1 \gset
select price as price2 from dbdyno.products where product_id = :product2 \gset
select price as price3 from dbdyno.products where product_id = :product3 \gset
\set total :price1 * :quantity1 + :price2 * :quantity2 + :price3 * :quantity3
insert into dbdyno.orders (customer_id, warehouse_id, status, total)
values (:customer, :warehouse, 0, :total) returning order_id as new_order \gset
insert into dbdyno.items (order_id, line, product_id, price, quantity) values
    (:new_order, 1, :product1, :price1, :quantity1),
    (:new_order, 2, :product2, :price2, :quantity2),
    (:new_order, 3, :product3, :price3, :quantity3);
update dbdyno.inventories set on_hand = on_hand - :quantity1 where warehouse_id = :warehouse and product_id = :product1;
update dbdyno.inventories set on_hand = on_hand - :quantity2 where warehouse_id = :warehouse and product_id = :product2;
update dbdyno.inventories set on_hand = on_hand - :quantity3 where warehouse_id = :warehouse and product_id = :product3;
insert into dbdyno.log (action, customer_id) values ('order-products', :customer);
update dbdyno.warehouses set orders_taken = orders_taken + 1 where warehouse_id = :warehouse;
commit;
