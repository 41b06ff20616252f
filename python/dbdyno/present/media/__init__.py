"""One renderer a medium: each shows every :class:`~dbdyno.present.document.Document`, whatever its kind."""
