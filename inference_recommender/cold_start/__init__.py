"""How long a new server takes until it answers within the objective, stage after stage, measured on real starts.

stages         what an endpoint's log and times tell of one start, and several starts as a figure; pure
first_answer   the client that asks a server until it answers within the objective
temporary_endpoint   an endpoint that exists for one measurement
"""
