"""The HTTP server: an API and a web page for models. It needs the extra `serve`."""
