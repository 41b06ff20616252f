alter table only dbdyno.micro_log add primary key (id)
