"""The programs that run inside containers. They import only what their container has."""
