create table dbdyno.products (
    product_id integer not null,
    category integer not null,
    name text not null,
    price integer not null, -- cents
    description text not null
)
