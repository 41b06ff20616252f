insert into ${table}
select i, repeat('x', pg_catalog.current_setting('block_size')::int / 9) from generate_series(1, ${blocks}) as i
