-- One view of everything.
set transaction isolation level repeatable read, read only
