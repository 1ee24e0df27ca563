"""Logs of tables: which files are live, as the engine and PyIceberg read it.

Not here: finding tables (the engine); compacting them (`plait.table`).
"""
