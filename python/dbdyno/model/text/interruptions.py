"""How the reason of a window begins that was not watched throughout, or ended late."""

AWAY = ("dbdyno was stopped", "the machine was suspended")
"""dbdyno itself was not there all the time."""
SLOW = "the server answered "
"""The server took long to answer at its end."""
LATE = "dbdyno was late "
"""The same where dbdyno itself worked, or waited for a CPU, most of that time."""
