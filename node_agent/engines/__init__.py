"""Engines: what runs the models, behind one interface (`interface.py`), made by `registry.py`."""
