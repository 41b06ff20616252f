create table dbdyno.items (
    order_id bigint not null,
    line integer not null,
    product_id integer not null,
    price integer not null, -- cents, when it was ordered
    quantity integer not null,
    returned integer not null default 0
) with (fillfactor = 90)
