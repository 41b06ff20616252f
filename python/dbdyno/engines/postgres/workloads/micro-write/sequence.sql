select nextval('dbdyno.micro_log_id_seq');
