"""Logs of tables: which files are live, as deltalake and PyIceberg read it.

Not here: finding tables (the engine); compacting them (`plait.table`).
"""
