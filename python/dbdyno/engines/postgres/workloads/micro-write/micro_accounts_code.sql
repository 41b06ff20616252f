create index micro_accounts_code on only dbdyno.micro_accounts (code)
