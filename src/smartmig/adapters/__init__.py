"""The outside: one file or folder per kind of cluster. Reading and acting are two classes, each call has a timeout."""
