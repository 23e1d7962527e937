"""The runtimes of a compiled encoder. `engine.py` has their port, and `load_engine.py` chooses one."""
