-- 20,000 rows from a program of the server: a call has no data of its own to send.
begin;
truncate only dbdyno.micro_copied;
copy dbdyno.micro_copied from program 'seq -f "%.0f,forty-eight characters of text in each row" 1 20000' with (format csv, delimiter ',');
commit;
