"""Models behind HTTP: an API and a page. Needs the extra `serve`."""
