"""What would the scheduler do? A discrete-event world around its own code.

The world drives the live scheduler core, its relay and its policies, and, where faults are the
question, the node agent's core; clocks, networks, engines and callers are modelled here. The same
seed gives the same events, byte for byte, in any process.

Where to look: `world.py` turns the core; `nodes.py` are nodes modelled directly (fast, for
policies), `agent_node.py` nodes that run the agent's core behind a network (for faults);
`engines/` say how long work takes, `workload/` who asks for what and when, `faults.py` and
`scenarios/` what goes wrong; `checkers.py` judge from outside, `metrics.py` and `summary.py` count.
`experiments/` compare it all with what is known in closed form.
"""
