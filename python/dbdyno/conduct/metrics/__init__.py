"""Serves the figures of windows to Prometheus while dbdyno measures."""
