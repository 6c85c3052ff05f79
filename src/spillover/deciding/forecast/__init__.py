"""Forecasts: when running jobs end, when waiting jobs start, and what they cost."""
