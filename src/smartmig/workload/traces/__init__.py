"""Public traces and measurements, one file per source; the data itself is not part of the package."""
