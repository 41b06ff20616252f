"""dbdyno: a dynamometer for databases.

The data go one way only::

    recipe -> plan -> cells -> conduct (drive + observe) -> store -> account -> conclude -> present

Each room is a package of this one. ``docs/concepts.md`` defines the terms, ``docs/schema.md`` the tables.
"""

__version__ = "0.1.0"
