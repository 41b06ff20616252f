alter table dbdyno.log add primary key (log_id)
