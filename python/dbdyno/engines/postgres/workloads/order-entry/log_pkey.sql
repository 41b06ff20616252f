alter table only dbdyno.log add primary key (log_id)
