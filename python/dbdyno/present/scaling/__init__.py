"""How a ladder scales, as a document with its charts."""
