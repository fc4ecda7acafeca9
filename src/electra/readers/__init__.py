"""Files of text in many formats, read document by document."""
