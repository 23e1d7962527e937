"""How long a new server takes until it answers within the objective, stage after stage, measured on real starts.

stages         what an endpoint's log and times tell of one start, and several starts as a figure; pure
first_answer   the client that asks a server until it answers within the objective
own_endpoint   an endpoint of its own: made, waited for, deleted
"""
