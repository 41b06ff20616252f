create index products_category on dbdyno.products (category, product_id)
