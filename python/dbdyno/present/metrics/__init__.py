"""Figures of windows as metrics for Prometheus: their records, their values, and a dashboard."""
