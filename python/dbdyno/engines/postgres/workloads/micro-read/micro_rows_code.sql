create unique index micro_rows_code on only dbdyno.micro_rows (code) include (amount)
