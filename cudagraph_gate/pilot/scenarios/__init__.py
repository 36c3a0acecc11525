"""The hard scenarios: one injected fault each, in a worker of its own, and proofs of what is left.

:data:`cudagraph_gate.model.SCENARIOS` names them; :data:`cudagraph_gate.pilot.scenarios.running.ATTACKS` maps
each name to the function that injects its fault.
"""
