create index micro_documents_body on only dbdyno.micro_documents using gin (body jsonb_path_ops)
