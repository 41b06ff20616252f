"""Where the memory is, as parts of a document and as a screen."""
