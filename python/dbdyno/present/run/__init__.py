"""Parts of the document of a run."""
