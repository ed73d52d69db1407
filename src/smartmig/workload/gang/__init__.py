"""Jobs that take whole GPUs: readers of cluster traces, filters, requested times, and what is in a trace."""
