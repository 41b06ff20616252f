insert into ${table} select i, repeat('x', 500) from generate_series(1, ${blocks}) as i
