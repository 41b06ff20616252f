"""One renderer a medium: each shows every document (:mod:`dbdyno.present.document.document`)."""
