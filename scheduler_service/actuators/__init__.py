"""Who carries out a scale decision? `process` on this machine, or the user's own `command`.

The core decides and counts; an actuator starts and stops what it is told, and says when it cannot.
"""
