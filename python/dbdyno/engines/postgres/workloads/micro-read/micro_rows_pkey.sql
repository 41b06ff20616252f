alter table only dbdyno.micro_rows add primary key (id)
