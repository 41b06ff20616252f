select dbdyno.spin($1::bigint)
