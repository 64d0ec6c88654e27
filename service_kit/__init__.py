"""What does a service of ours need of its process? Logs, tracing, configuration, a parent to obey.

Shared by `scheduler_service` and `node_agent`, which never import each other; it imports neither.
"""
