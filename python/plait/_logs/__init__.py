"""Logs of tables: which files count, as deltalake and PyIceberg read it.

Not here: finding tables (the engine); compacting them (`plait.table`).
"""
