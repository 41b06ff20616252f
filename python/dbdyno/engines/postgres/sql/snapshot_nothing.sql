-- After it a session of version 14 reports what it has done.
select 1
