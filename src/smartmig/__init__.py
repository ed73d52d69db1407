"""smartmig: schedule jobs on partitioned (MIG) and whole GPUs."""

__version__ = "0.1.0"
