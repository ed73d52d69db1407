"""Who decides: which slice a job gets (`placement/`) and how a GPU is cut (`repartition/`)."""
